"""Prompts as text files: finding them, checking the fields in them, and filling these.

A field is written `{name}`. A paragraph whose fields are all empty for a row (a dialogue without knowledge, a first
turn without history) is left out. What looks like a field in a filled-in text stays as it is.

>>> TextPrompt("Knowledge: {knowledge}\\n\\nReply: {response}", ("knowledge", "response")).fill(response="{knowledge}")
'Reply: {knowledge}'
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

from faithkit.errors import UserError, choice_hint
from faithkit.inference.text import SYSTEM, USER, Message

Built = TypeVar("Built")
FIELD = re.compile(r"\{([a-z_]+)\}")
FOLDER, SUFFIX = "prompts", ".txt"  # of a task's package
SYSTEM_FILE = "system.txt"  # where a folder has it, it is said first in the system's role


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """A prompt with fields of its own.

    Args:
        system: Said first, in the system's role; empty for none.
        name: As its file is named.
        kept: Fields whose paragraph stays, though they are empty.
    """

    text: str
    fields: tuple[str, ...]
    system: str = ""
    name: str = ""
    kept: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self.text, self.fields)

    @property
    def fingerprint(self) -> str:
        """A hash of the text, by which a result tells which prompt it is from."""
        return hashlib.sha256(f"{self.system}\0{self.text}".encode()).hexdigest()[:12]

    def fill(self, **values: str) -> str:
        """Puts values in place of the fields; what is not given is empty."""
        return fill_fields(self.text, {name: values.get(name, "").strip() for name in self.fields}, *self.kept)

    def messages(self, **values: str) -> tuple[Message, ...]:
        """Makes the messages of a request."""
        return as_messages(self.fill(**values), self.system)


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


def read_text_prompt(
    package: str, name: str, *fields: str, folder: str | None = None, kept: Sequence[str] = ()
) -> TextPrompt:
    """Reads a prompt of a package, or one of a folder of the user's."""

    def build(text: str, system: str) -> TextPrompt:
        return TextPrompt(text, fields, system=system, name=name, kept=tuple(kept))

    return read_text(package, name, folder, build)


def read_text(package: str, name: str, folder: str | None, build: Callable[[str, str], Built]) -> Built:
    """Reads the text of a prompt and what is said first in the system's role, and builds a prompt of both.

    Args:
        package: The task whose prompts are ours.
        folder: One of the user's; None for ours.
        build: Checks them.

    Raises:
        UserError: There is none of this name, or a field is missing or unknown.
    """
    root = files(package) / FOLDER if folder is None else Path(folder).expanduser()
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
