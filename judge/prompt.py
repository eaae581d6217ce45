"""Prompts as text files: what stands in them, and how an example fills them.

A prompt holds the fields `{knowledge}`, `{history}` and `{response}`, and may say by `{examples}` where examples are
to stand (judge/few_shot.py). A paragraph whose only fields are empty for an example (a dialogue without knowledge, a
first turn without history) is left out. What stands before the first field is the same for all examples, and what is
judged comes last, so that engines that keep the beginnings of prompts read an instruction, a knowledge and a
conversation once for all replies to it.

>>> from faithkit.records import Example
>>> example = Example(id="1", source="a", split="b", group="c", knowledge="It is red.", response="It is blue.")
>>> PromptTemplate("Knowledge: {knowledge}\\n\\nHistory: {history}\\n\\nReply: {response}").fill(example)
'Knowledge: It is red.\\n\\nReply: It is blue.'
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from data_modules.datasets.transcripts import write_history
from faithkit.inference import prompts
from faithkit.inference.prompts import FIELD, Built, as_messages, check_fields, fill_fields
from faithkit.inference.text import Message
from faithkit.records import Example

__all__ = [
    "PromptTemplate",
    "as_messages",
    "check_fields",
    "fill_fields",
    "read_prompt",
    "read_text",
    "write_history",
]

FIELDS = ("knowledge", "history", "response")
EXAMPLES = "examples"  # a field too, of a prompt with examples


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """The text of a prompt, with its fields.

    Args:
        system: Said first, in the system's role; empty for none.
        name: As the command line names it.
        examples: Stand in the place of `{examples}`, else before the first paragraph with a field; empty for none.
    """

    text: str
    system: str = ""
    name: str = ""
    examples: str = ""

    def __post_init__(self) -> None:
        check_fields(self.text, FIELDS, EXAMPLES)

    @property
    def fingerprint(self) -> str:
        """A hash of the text, by which a result tells which prompt it is from."""
        said = f"{self.system}\0{self.text}" + (f"\0{self.examples}" if self.examples else "")
        return hashlib.sha256(said.encode()).hexdigest()[:12]

    def fill(self, example: Example) -> str:
        """Puts an example's texts in place of the fields; what looks like a field in them stays as it is."""
        instruction, question = self._parts
        return _fill([*instruction, *question], example, self.examples)

    def fill_question(self, example: Example) -> str:
        """Fills what stands from the first field on: what examples repeat."""
        return _fill(self._parts[1], example, "")

    @property
    def _parts(self) -> tuple[list[str], list[str]]:
        """The paragraphs before the first field of an example, with that of examples; and the others."""
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
    """Reads a prompt of ours by its name, or one of a folder of the user's; arguments as those of `read_text`."""
    return read_text(name, folder, lambda text, system: PromptTemplate(text, system=system, name=name))


def read_text(name: str, folder: str | None, build: Callable[[str, str], Built]) -> Built:
    """Does what `faithkit.inference.prompts.read_text` does, with the judges' prompts."""
    return prompts.read_text("judge", name, folder, build)
