"""Prompts as text files, and how an example fills them.

A prompt has the fields `{knowledge}`, `{history}` and `{response}`, and may mark the place of few-shot examples by
`{examples}` (judge/few_shot.py). A paragraph is left out if all its fields are empty for an example (a dialogue without
knowledge, a first turn without history). The text before the first field is the same for all examples, and the response
comes last, so that engines with prefix caching process an instruction, a knowledge text and a conversation once.

>>> from faithkit.records import Example
>>> example = Example(id="1", source="a", split="b", group="c", knowledge="It is red.", response="It is blue.")
>>> PromptTemplate("Knowledge: {knowledge}\\n\\nHistory: {history}\\n\\nReply: {response}").fill(example)
'Knowledge: It is red.\\n\\nReply: It is blue.'
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from data_modules.reading.dialogues import write_history
from faithkit.inference.prompts import FIELD, as_messages, check_fields, fill_fields, read_text
from faithkit.inference.text import Message
from faithkit.records import Example

FIELDS = ("knowledge", "history", "response")
EXAMPLES = "examples"  # the field of few-shot examples


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """The text of a prompt, with its fields.

    Args:
        system: The system message; empty for none.
        name: The name on the command line.
        examples: Replace `{examples}`, or come before the first paragraph with a field; empty for none.
    """

    text: str
    system: str = ""
    name: str = ""
    examples: str = ""

    def __post_init__(self) -> None:
        check_fields(self.text, FIELDS, EXAMPLES)

    @property
    def fingerprint(self) -> str:
        """A hash of the text, recorded with results."""
        text = f"{self.system}\0{self.text}" + (f"\0{self.examples}" if self.examples else "")
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def fill(self, example: Example) -> str:
        """Replaces the fields by an example's texts; braces in these texts are unchanged."""
        instruction, question = self._parts
        return _fill([*instruction, *question], example, self.examples)

    def fill_question(self, example: Example) -> str:
        """Fills the part from the first field on, which few-shot examples repeat."""
        return _fill(self._parts[1], example, "")

    @property
    def _parts(self) -> tuple[list[str], list[str]]:
        """The paragraphs before the first field of an example, including `{examples}`; and the remaining paragraphs."""
        paragraphs = self.text.strip().split("\n\n")
        begin = next(i for i, paragraph in enumerate(paragraphs) if set(FIELD.findall(paragraph)) & set(FIELDS))
        instruction, question = paragraphs[:begin], paragraphs[begin:]
        has_place = any(EXAMPLES in FIELD.findall(paragraph) for paragraph in paragraphs)
        return instruction if has_place else [*instruction, f"{{{EXAMPLES}}}"], question

    def messages(self, example: Example) -> tuple[Message, ...]:
        """Makes the messages of a request."""
        return as_messages(self.fill(example), self.system)


def _fill(paragraphs: Sequence[str], example: Example, examples: str) -> str:
    values = {
        "knowledge": example.knowledge.strip(),
        "history": write_history(example.history),
        "response": example.response.strip(),
        EXAMPLES: examples,
    }
    return fill_fields("\n\n".join(paragraphs), values, "response")


def read_prompt(name: str, folder: str | None = None) -> PromptTemplate:
    """Reads a built-in prompt by its name, or a prompt in the user's folder."""
    return read_text("judge", name, folder, lambda text, system: PromptTemplate(text, system=system, name=name))
