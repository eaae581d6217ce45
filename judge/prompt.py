"""Prompts as text files, how an example fills them, and few-shot examples in them.

A prompt has the fields `{knowledge}`, `{history}` and `{response}`, and may mark the place of few-shot examples by
`{examples}`. A paragraph is left out if all its fields are empty for an example (a dialogue without
knowledge, a first turn without history). The text before the first field is the same for all examples, and the response
comes last, so that engines with prefix caching process an instruction, a knowledge text and a conversation once.

>>> from faithkit.records import Example
>>> example = Example(id="1", source="a", split="b", group="c", knowledge="It is red.", response="It is blue.")
>>> PromptTemplate("Knowledge: {knowledge}\\n\\nHistory: {history}\\n\\nReply: {response}").fill(example)
'Knowledge: It is red.\\n\\nReply: It is blue.'

Few-shot examples are rows with the correct reply as `target`, before the row to judge. They replace `{examples}` in the
prompt, or come before its first paragraph with a field. All requests share this prefix, so engines process it once. A
file has one row per example:

    {"knowledge": "...", "history": ["..."], "response": "...", "reply": "Yes. \\"twelve\\" is wrong: ..."}
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from data_modules.reading.dialogues import write_history
from data_modules.reading.fields import read_history
from data_modules.reading.rows import BadRow, ReadReport, read_rows
from faithkit.errors import UserError, choice_hint
from faithkit.inference.prompts import FIELD, as_messages, check_fields, fill_fields, read_text
from faithkit.inference.text import Message
from faithkit.records import HALLUCINATED, Example
from judge.asking import ASKINGS, target_text
from judge.options import MAX_EXAMPLES, TRAINABLE, AskOptions

FIELDS = ("knowledge", "history", "response")
EXAMPLES = "examples"  # the field of few-shot examples
EXAMPLE_FIELDS = (*FIELDS, "reply")  # of a row in a file of examples
JUDGED = "Now the one that you are to judge:"


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


def build_prompt(options: AskOptions, shots: Sequence[Example] = ()) -> PromptTemplate:
    """Builds the prompt of the options, with the given examples or those of a file."""
    template = read_prompt(ASKINGS[options.ask].prompt, options.prompts)
    if isinstance(options.examples, int) and not shots:
        hint = "give a file with knowledge, response and reply in each row"
        raise UserError(f"examples is {options.examples}, and only evaluate.py can draw rows", hint=hint)
    return with_shots(template, read_shots(options.examples) if isinstance(options.examples, str) else shots)


def with_shots(template: PromptTemplate, shots: Sequence[Example]) -> PromptTemplate:
    """Adds examples to a prompt."""
    texts = [
        f"Example {number}\n\n{template.fill_question(shot)}\n\n{(shot.target or '').strip()}"
        for number, shot in enumerate(shots, start=1)
    ]
    return replace(template, examples="\n\n".join([*texts, JUDGED])) if texts else template


def draw_shots(rows: Sequence[Example], ask: str, number: int, *, seed: int) -> list[Example]:
    """Draws labelled rows at random, alternating hallucinated and faithful rows as long as there are both.

    Raises:
        UserError: There are too few rows, or rows without a correct reply.
    """
    if ask not in TRAINABLE:
        hint = f"give a file with replies of your own: judge.examples=FILE; or judge.ask={', '.join(TRAINABLE)}"
        raise UserError(f"judge.ask={ask}: no row tells the right reply", hint=hint)
    if len(rows) < number:
        hint = "lower judge.examples, or give a file: judge.examples=FILE"
        raise UserError(f"judge.examples={number}, and {len(rows)} rows are left that are not tested", hint=hint)
    order = [rows[place] for place in np.random.default_rng(seed).permutation(len(rows))]
    sides = [[e for e in order if (e.label == HALLUCINATED) == wanted] for wanted in (True, False)]
    chosen: list[Example] = []
    while len(chosen) < number:
        side = sides[len(chosen) % 2] or sides[1 - len(chosen) % 2]
        chosen.append(side.pop(0))
    return [replace(example, target=target_text(example, ask)) for example in chosen]


def read_shots(path: str) -> list[Example]:
    """Reads a file of examples.

    Raises:
        UserError: It is missing, or a row lacks a field.
    """
    shots = []
    for row in read_rows(Path(path).expanduser(), ReadReport()):
        try:
            if unknown := [name for name in row.values if name not in EXAMPLE_FIELDS]:
                raise BadRow(f"there is no field {unknown[0]!r}", hint=choice_hint(unknown[0], EXAMPLE_FIELDS))
            history = row.values.get("history")
            shots.append(
                Example(
                    id=row.default_id,
                    source="examples",
                    split="examples",
                    group=row.default_id,
                    knowledge=row.text("knowledge", empty_ok=True),
                    history=read_history(history, row.place) if history else (),
                    response=row.text("response"),
                    target=row.text("reply"),
                )
            )
        except BadRow as error:
            raise UserError(
                str(error), place=row.place, hint=error.hint or f"a row has {', '.join(EXAMPLE_FIELDS)}"
            ) from error
    if len(shots) > MAX_EXAMPLES:
        raise UserError(f"{len(shots)} examples in a prompt", place=path, hint=f"use {MAX_EXAMPLES} or fewer")
    return shots
