"""Few-shot examples in a prompt: rows with the correct reply as `target`, before the row to judge.

They replace `{examples}` in the prompt, or come before its first paragraph with a field. All requests share this
prefix, so engines process it once. A file has one row per example:

    {"knowledge": "...", "history": ["..."], "response": "...", "reply": "Yes. \\"twelve\\" is wrong: ..."}
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from data_modules.reading.fields import read_history
from data_modules.reading.rows import BadRow, ReadReport, read_rows
from faithkit.errors import UserError, choice_hint
from faithkit.records import HALLUCINATED, Example
from judge.asking import ASKINGS, target_text
from judge.options import MAX_EXAMPLES, TRAINABLE, AskOptions
from judge.prompt import PromptTemplate, read_prompt

JUDGED = "Now the one that you are to judge:"
FIELDS = ("knowledge", "history", "response", "reply")


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
            if unknown := [name for name in row.values if name not in FIELDS]:
                raise BadRow(f"there is no field {unknown[0]!r}", hint=choice_hint(unknown[0], FIELDS))
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
            raise UserError(str(error), place=row.place, hint=error.hint or f"a row has {', '.join(FIELDS)}") from error
    if len(shots) > MAX_EXAMPLES:
        raise UserError(f"{len(shots)} examples in a prompt", place=path, hint=f"use {MAX_EXAMPLES} or fewer")
    return shots
