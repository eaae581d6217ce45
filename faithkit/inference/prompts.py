"""Reads prompts from text files, checks their fields, and fills them.

A field is written `{name}`. A paragraph with only empty fields for a row (a dialogue without knowledge, a first turn
without history) is left out. Text like `{name}` in an inserted value is not replaced.

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
SYSTEM_FILE = "system.txt"  # the system message, if the folder has it


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """A prompt with fields.

    Args:
        system: The system message; empty for none.
        name: The name of its file.
        kept: Fields that keep their paragraph even if they are empty.
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
        """A hash of the text that identifies the prompt in results."""
        return hashlib.sha256(f"{self.system}\0{self.text}".encode()).hexdigest()[:12]

    def fill(self, **values: str) -> str:
        """Replaces the fields by values; missing values are empty."""
        return fill_fields(self.text, {name: values.get(name, "").strip() for name in self.fields}, *self.kept)

    def messages(self, **values: str) -> tuple[Message, ...]:
        """Builds the messages of a request."""
        return as_messages(self.fill(**values), self.system)


def check_fields(text: str, fields: Sequence[str], *optional: str) -> None:
    """Checks that a prompt has all fields, and no others except optional ones."""
    found, known = FIELD.findall(text), (*fields, *optional)
    if unknown := [field for field in found if field not in known]:
        raise UserError(f"a prompt has no field {{{unknown[0]}}}", hint=choice_hint(unknown[0], known))
    if missing := [field for field in fields if field not in found]:
        raise UserError(f"the prompt lacks {{{missing[0]}}}", hint=f"write {{{missing[0]}}} where its value belongs")


def fill_fields(text: str, values: Mapping[str, str], *kept: str) -> str:
    """Replaces the fields by values; a paragraph with only empty fields is left out.

    Args:
        kept: Fields that keep their paragraph even if they are empty.
    """
    paragraphs = [
        FIELD.sub(lambda match: values[match[1]], paragraph)
        for paragraph in text.strip().split("\n\n")
        if not (names := FIELD.findall(paragraph)) or any(values[name] or name in kept for name in names)
    ]
    return "\n\n".join(paragraphs)


def as_messages(content: str, system: str) -> tuple[Message, ...]:
    """Builds the messages of a request."""
    return (Message(SYSTEM, system), Message(USER, content)) if system else (Message(USER, content),)


def read_text_prompt(
    package: str, name: str, *fields: str, folder: str | None = None, kept: Sequence[str] = ()
) -> TextPrompt:
    """Reads a prompt of a package or of a user's folder."""

    def build(text: str, system: str) -> TextPrompt:
        return TextPrompt(text, fields, system=system, name=name, kept=tuple(kept))

    return read_text(package, name, folder, build)


def read_text(package: str, name: str, folder: str | None, build: Callable[[str, str], Built]) -> Built:
    """Reads the text and the system message of a prompt, and builds the prompt.

    Args:
        package: The package with the built-in prompts.
        folder: A user's folder; None for the built-in prompts.
        build: Builds and checks the prompt.

    Raises:
        UserError: There is no prompt of this name, or a field is missing or unknown.
    """
    root = files(package) / FOLDER if folder is None else Path(folder).expanduser()
    path = root / f"{name}{SUFFIX}"
    if not path.is_file():
        have = sorted(file.name.removesuffix(SUFFIX) for file in root.iterdir()) if root.is_dir() else []
        choices = [one for one in have if one != SYSTEM_FILE.removesuffix(SUFFIX)]
        hint = choice_hint(name, choices) if choices else f"put {name}{SUFFIX} there"
        raise UserError(f"there is no prompt {name}", place=str(root), hint=hint)
    system = root / SYSTEM_FILE
    try:
        message = system.read_text(encoding="utf-8").strip() if system.is_file() else ""
        return build(path.read_text(encoding="utf-8"), message)
    except (UserError, UnicodeDecodeError) as error:
        problem = error.problem if isinstance(error, UserError) else "the prompt is not UTF-8 text"
        hint = (isinstance(error, UserError) and error.hint) or "save it as UTF-8"
        raise UserError(problem, place=str(path), hint=hint) from error
