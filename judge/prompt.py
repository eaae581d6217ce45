"""Prompts as text files, how an example fills them, and few-shot examples in them.

A prompt has the field `{response}`, and may have `{knowledge}`, `{history}` (a turn a line), `{dialogue}` (the same in
one line), `{question}` (the last turn without its speaker) and `{examples}` (the place of few-shot examples). A
paragraph is left out if all its fields are empty for an example (a dialogue without knowledge, a first turn without
history). In ours the text before the first field is the same for all examples and the response comes last, so that
engines with prefix caching process an instruction, a knowledge text and a conversation once.

>>> from faithkit.records import Example
>>> example = Example(id="1", source="a", split="b", group="c", knowledge="It is red.", response="It is blue.")
>>> PromptTemplate("Knowledge: {knowledge}\\n\\nHistory: {history}\\n\\nReply: {response}").fill(example)
'Knowledge: It is red.\\n\\nReply: It is blue.'

A file may begin with a header in YAML, which declares how replies are read (judge/options.py, `PromptHeader`):

    ---
    reply: json
    verdict: hallucinated
    spans: [contradicted, invented]
    ---

A folder of prompts has `<ask>.<task>.txt` for rows of a task (`spans.qa.txt`), and `<ask>.txt` for all others. Two are
in judge/prompts/: `diahalu`, for whole dialogues, and `ragtruth`, for its three tasks.

Few-shot examples are rows with the correct reply as `target`, before the row to judge. They replace `{examples}` in the
prompt, or come before its first paragraph with a field. All requests share this prefix, so engines process it once. A
file has one row per example:

    {"knowledge": "...", "history": ["..."], "response": "...", "reply": "Yes. \\"twelve\\" is wrong: ..."}
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from data_modules.reading.dialogues import write_history
from data_modules.reading.fields import read_history
from data_modules.reading.rows import BadRow, ReadReport, read_rows
from faithkit.errors import UserError, choice_hint, shorten
from faithkit.inference.prompts import (
    EXAMPLES,
    HEADER_MARK,
    SHOTS_SUFFIX,
    SUFFIX,
    as_messages,
    check_fields,
    fill_fields,
    join_examples,
    prompts_folder,
    read_text,
    split_instruction,
)
from faithkit.inference.text import Message
from faithkit.records import HALLUCINATED, Example
from judge.options import MAX_EXAMPLES, REPLIES, TRAINABLE, AskOptions, PromptHeader
from judge.reply import NO_HEADER, target_text

RESPONSE = "response"
OPTIONAL_FIELDS = ("knowledge", "history", "dialogue", "question")


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """The text of a prompt, with its fields.

    Args:
        system: The system message; empty for none.
        name: The name on the command line.
        examples: Replace `{examples}`, or come before the first paragraph with a field; empty for none.
        header: Declares how replies are read.
    """

    text: str
    system: str = ""
    name: str = ""
    examples: str = ""
    header: PromptHeader = NO_HEADER

    def __post_init__(self) -> None:
        check_fields(self.text, (RESPONSE,), *OPTIONAL_FIELDS, EXAMPLES)

    @property
    def fingerprint(self) -> str:
        """A hash of the text, recorded with results."""
        text = f"{self.system}\0{self.text}" + (f"\0{self.examples}" if self.examples else "")
        text += f"\0{self.header}" if self.header != NO_HEADER else ""
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def fill(self, example: Example) -> str:
        """Replaces the fields by an example's texts; braces in these texts are unchanged."""
        instruction, question = split_instruction(self.text, (RESPONSE, *OPTIONAL_FIELDS))
        return _fill([*instruction, *question], example, self.examples)

    def messages(self, example: Example) -> tuple[Message, ...]:
        """Makes the messages of a request."""
        return as_messages(self.fill(example), self.system)


def _fill(paragraphs: Sequence[str], example: Example, examples: str) -> str:
    values = {**example_values(example), RESPONSE: example.response.strip(), EXAMPLES: examples}
    return fill_fields("\n\n".join(paragraphs), values, RESPONSE)


def example_values(example: Example) -> dict[str, str]:
    """Returns the values of the optional fields."""
    history = [write_history([turn]) for turn in example.history]
    question = example.history[-1].text.strip() if history else ""
    values = example.knowledge.strip(), "\n".join(history), " ".join(history), question
    return dict(zip(OPTIONAL_FIELDS, values, strict=True))


def read_prompt(name: str, folder: str | None = None) -> PromptTemplate:
    """Reads a built-in prompt by its name, or a prompt in the user's folder.

    Raises:
        UserError: It is missing or lacks a field, or its header does not end, is not YAML, or has an unknown key or a
            wrong value.
    """

    def build(text: str, system: str) -> PromptTemplate:
        first, _, rest = text.lstrip("\ufeff").partition("\n")
        if first.rstrip() != HEADER_MARK:
            return PromptTemplate(text, system=system, name=name)
        head = re.split(rf"^{HEADER_MARK}[ \t\r]*$\n?", rest, maxsplit=1, flags=re.MULTILINE)
        if len(head) == 1:
            raise UserError("the header does not end", hint=f"write a second line of {HEADER_MARK} after its keys")
        try:
            values: Any = yaml.load(head[0], Loader=yaml.BaseLoader)  # noqa: S506 - yes and no are texts, and nothing else is built
        except yaml.YAMLError as error:
            problem, hint = f"the header is not YAML: {shorten(str(error))}", "write lines such as reply: json"
            raise UserError(problem, hint=hint) from None
        known = [one.name for one in fields(PromptHeader)]
        if not isinstance(values, Mapping) or not values:
            hint = f"write reply: {', '.join(REPLIES[:-1])} or {REPLIES[-1]}"
            raise UserError("the header has no keys", hint=hint)
        if unknown := [key for key in values if key not in known]:
            raise UserError(f"a header has no key {unknown[0]!r}", hint=choice_hint(str(unknown[0]), known))
        spans = values.get("spans")
        header = PromptHeader(**{**values, **({"spans": [spans]} if isinstance(spans, str) and spans else {})})
        return PromptTemplate(head[1], system=header.system or system, name=name, header=header)

    return read_text("judge", name, folder, build)


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompt of each task, and of all other rows.

    Args:
        ask: The way of asking, with the reply that the prompts declare.
        default: None if every row has a task with a prompt.
        by_task: By the task's name in lower case.
        folder: The user's folder, for errors.
    """

    ask: str
    default: PromptTemplate | None
    by_task: Mapping[str, PromptTemplate] = field(default_factory=dict)
    folder: str = ""

    @property
    def each(self) -> list[PromptTemplate]:
        """Lists all prompts."""
        return [*([self.default] if self.default else []), *self.by_task.values()]

    def of(self, example: Example) -> PromptTemplate:
        """Returns the prompt of an example.

        Raises:
            UserError: The folder has no prompt for its task.
        """
        task = str(example.meta.get("task", "")).casefold()
        found = self.by_task.get(task) or self.default
        if found is None:
            kind = f"of the task {task!r}" if task else "without a task"
            file = f"{self.ask}.{task}{SUFFIX}, or " if task else ""
            hint = f"write {file}{self.ask}{SUFFIX} for all rows without a prompt of their own"
            raise UserError(f"there is no prompt for rows {kind}", place=self.folder, hint=hint)
        return found

    def messages(self, example: Example) -> tuple[Message, ...]:
        """Makes the messages of a request."""
        return self.of(example).messages(example)

    def hides_knowledge(self, examples: Sequence[Example]) -> bool:
        """Checks that every example has a prompt; returns whether knowledge of any is left out by its prompt."""
        used = [self.of(one) for one in examples]
        return any(one.knowledge and "{knowledge}" not in it.text for one, it in zip(examples, used, strict=True))


def read_prompts(ask: str, folder: str | None = None) -> Prompts:
    """Reads the built-in prompt, or those in a user's folder.

    Raises:
        UserError: A file is missing or wrong, or two of them declare different replies.
    """
    root = prompts_folder("judge", folder) if folder else None
    files = sorted(root.glob(f"{ask}.*{SUFFIX}")) if root else []
    by_task = {file.name[len(ask) + 1 : -len(SUFFIX)].casefold(): read_prompt(file.stem, folder) for file in files}
    needs_default = root is None or not files or (root / f"{ask}{SUFFIX}").is_file()
    found = Prompts(ask, read_prompt(ask, folder) if needs_default else None, by_task, folder or "")
    headers = {str(replace(one.header, system=None)): one.name for one in found.each}
    if len(headers) > 1:
        one, other, *_ = headers.values()
        hint = "write the same reply, words and keys in both headers"
        raise UserError(f"{one}{SUFFIX} and {other}{SUFFIX} declare different replies", place=folder, hint=hint)
    return found


def build_prompts(options: AskOptions, shots: Sequence[Example] = ()) -> Prompts:
    """Builds the prompts of the options, with the given examples or those of a file."""
    found = read_prompts(options.ask, options.prompts)
    shots = shots or find_shots(options.ask, options)
    default = found.default and with_shots(found.default, shots)
    return replace(
        found, default=default, by_task={task: with_shots(one, shots) for task, one in found.by_task.items()}
    )


def with_shots(template: PromptTemplate, shots: Sequence[Example]) -> PromptTemplate:
    """Adds examples to a prompt."""
    # Each example repeats the prompt from its first field on.
    _, question = split_instruction(template.text, (RESPONSE, *OPTIONAL_FIELDS))
    filled = [(_fill(question, one, ""), one.target or "") for one in shots]
    return replace(template, examples=join_examples(filled))


def shots_file(name: str, folder: str | None) -> Path | None:
    """Finds the file of examples next to a prompt in a user's folder."""
    path = prompts_folder("judge", folder) / f"{name}{SHOTS_SUFFIX}" if folder else None
    return path if path and path.is_file() else None


def find_shots(name: str, options: AskOptions, texts: Sequence[str] = (RESPONSE,)) -> list[Example]:
    """Reads the examples of the options: a file, or the first ones of the file next to the prompt.

    Args:
        texts: The fields of a row besides knowledge, history and reply.

    Raises:
        UserError: A number is given, and there is no such file or it has too few rows.
    """
    if options.examples is None or isinstance(options.examples, str):
        return read_shots(options.examples, texts) if options.examples else []
    path = shots_file(name, options.prompts)
    if path is None:
        hint = f"give a file with {', '.join(('knowledge', *texts))} and reply in each row: judge.examples=FILE"
        raise UserError(f"examples is {options.examples}, and only evaluate.py can draw rows", hint=hint)
    shots = read_shots(str(path), texts)
    if len(shots) < options.examples:
        hint = f"add rows, or set judge.examples={len(shots)}"
        raise UserError(f"judge.examples={options.examples}, and here are {len(shots)}", place=str(path), hint=hint)
    return shots[: options.examples]


def draw_shots(
    rows: Sequence[Example], ask: str, number: int, *, seed: int, header: PromptHeader = NO_HEADER
) -> list[Example]:
    """Draws labelled rows at random, alternating hallucinated and faithful rows as long as there are both.

    Args:
        header: The form of the replies.

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
    return [replace(example, target=target_text(example, ask, header)) for example in chosen]


def read_shots(path: str, texts: Sequence[str] = (RESPONSE,)) -> list[Example]:
    """Reads a file of examples.

    Args:
        texts: The fields of a row besides knowledge, history and reply: the response; all but the first go to `meta`.

    Raises:
        UserError: It is missing, or a row lacks a field.
    """
    known, shots = ("knowledge", "history", *texts, "reply"), []
    for row in read_rows(Path(path).expanduser(), ReadReport()):
        try:
            if unknown := [name for name in row.values if name not in known]:
                raise BadRow(f"there is no field {unknown[0]!r}", hint=choice_hint(unknown[0], known))
            history = row.values.get("history")
            shots.append(
                Example(
                    id=row.default_id,
                    source="examples",
                    split="examples",
                    group=row.default_id,
                    knowledge=row.text("knowledge", empty_ok=True),
                    history=read_history(history, row.place) if history else (),
                    response=row.text(texts[0]),
                    target=row.text("reply"),
                    meta={name: row.text(name) for name in texts[1:]},
                )
            )
        except BadRow as error:
            raise UserError(str(error), place=row.place, hint=error.hint or f"a row has {', '.join(known)}") from error
    if len(shots) > MAX_EXAMPLES:
        raise UserError(f"{len(shots)} examples in a prompt", place=path, hint=f"use {MAX_EXAMPLES} or fewer")
    return shots
