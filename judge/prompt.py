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
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

from data_modules.reading.fields import SEEKER, SPEAKER_MARKS, WIZARD
from faithkit.errors import UserError, choice_hint
from faithkit.inference.text import SYSTEM, USER, Message
from faithkit.records import Example, Turn

Built = TypeVar("Built")
FIELDS = ("knowledge", "history", "response")
EXAMPLES = "examples"  # a field too, of a prompt with examples
FIELD = re.compile(r"\{([a-z_]+)\}")
SUFFIX, SYSTEM_FILE = ".txt", "system.txt"  # the latter, where a folder has it, is said first in the system's role


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


def check_fields(text: str, fields: Sequence[str], *optional: str) -> None:
    """Refuses a prompt that lacks one of the fields, or has another that is not one of the optional ones."""
    found, known = FIELD.findall(text), (*fields, *optional)
    if unknown := [field for field in found if field not in known]:
        raise UserError(f"a prompt has no field {{{unknown[0]}}}", hint=choice_hint(unknown[0], known))
    if missing := [field for field in fields if field not in found]:
        raise UserError(f"the prompt lacks {{{missing[0]}}}", hint=f"write {{{missing[0]}}} where it is to stand")


def fill_fields(text: str, values: Mapping[str, str], *kept: str) -> str:
    """Puts values in place of the fields; a paragraph whose fields are all empty is left out.

    Args:
        kept: Fields whose paragraph stays, though they are empty.
    """
    paragraphs = [
        FIELD.sub(lambda match: values[match[1]], paragraph)
        for paragraph in text.strip().split("\n\n")
        if not (own := FIELD.findall(paragraph)) or any(values[field] or field in kept for field in own)
    ]
    return "\n\n".join(paragraphs)


def as_messages(said: str, system: str) -> tuple[Message, ...]:
    """Makes the messages of a request."""
    return (Message(SYSTEM, system), Message(USER, said)) if system else (Message(USER, said),)


def _fill(paragraphs: Sequence[str], example: Example, examples: str) -> str:
    values = {
        "knowledge": example.knowledge.strip(),
        "history": write_history(example.history),
        "response": example.response.strip(),
        EXAMPLES: examples,
    }
    return fill_fields("\n\n".join(paragraphs), values, "response")


def write_history(turns: Sequence[Turn]) -> str:
    """Writes the turns of a conversation, a line each, as HalluDial does."""
    speakers = (WIZARD if turn.speaker == WIZARD else SEEKER for turn in turns)  # other names are people's
    return "\n".join(f"{SPEAKER_MARKS[who]}: {turn.text.strip()}" for who, turn in zip(speakers, turns, strict=True))


def read_prompt(name: str, folder: str | None = None) -> PromptTemplate:
    """Reads a prompt of ours by its name, or one of a folder of the user's; arguments as those of `read_text`."""
    return read_text(name, folder, lambda text, system: PromptTemplate(text, system=system, name=name))


def read_text(name: str, folder: str | None, build: Callable[[str, str], Built]) -> Built:
    """Reads the text of a prompt and what is said first in the system's role, and builds a prompt of both.

    Args:
        folder: One of the user's; None for ours.
        build: Checks them.

    Raises:
        UserError: There is none of this name, or a field is missing or unknown.
    """
    root = files("judge") / "prompts" if folder is None else Path(folder).expanduser()
    path = root / f"{name}{SUFFIX}"
    if not path.is_file():
        have = sorted(own.name.removesuffix(SUFFIX) for own in root.iterdir()) if root.is_dir() else []
        choices = [one for one in have if one != SYSTEM_FILE.removesuffix(SUFFIX)]
        hint = choice_hint(name, choices) if choices else f"put {name}{SUFFIX} there"
        raise UserError(f"there is no prompt {name}", place=str(root), hint=hint)
    system = root / SYSTEM_FILE
    try:
        said = system.read_text(encoding="utf-8").strip() if system.is_file() else ""
        return build(path.read_text(encoding="utf-8"), said)
    except (UserError, UnicodeDecodeError) as error:
        problem = error.problem if isinstance(error, UserError) else "the prompt is no UTF-8 text"
        hint = (isinstance(error, UserError) and error.hint) or "save it as UTF-8"
        raise UserError(problem, place=str(path), hint=hint) from error
