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
SHOTS_SUFFIX = ".examples.jsonl"  # of a file of examples next to its prompt
EXAMPLES = "examples"  # the field of few-shot examples
HEADER_MARK = "---"  # the lines around a header, which only prompts of verdicts have
JUDGED = "Now the one that you are to judge:"


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """A prompt with fields.

    Args:
        system: The system message; empty for none.
        name: The name of its file.
        kept: Fields that keep their paragraph even if they are empty.
        optional: Fields that the text may leave out.
    """

    text: str
    fields: tuple[str, ...]
    system: str = ""
    name: str = ""
    kept: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.text.startswith(f"{HEADER_MARK}\n"):
            raise UserError("this prompt has no header: its reply has a fixed form", hint="delete its header")
        check_fields(self.text, self.fields, *self.optional)

    @property
    def fingerprint(self) -> str:
        """A hash of the text that identifies the prompt in results."""
        return hashlib.sha256(f"{self.system}\0{self.text}".encode()).hexdigest()[:12]

    def fill(self, **values: str) -> str:
        """Replaces the fields by values; missing values are empty."""
        names = (*self.fields, *self.optional)
        return fill_fields(self.text, {name: values.get(name, "").strip() for name in names}, *self.kept)

    def messages(self, **values: str) -> tuple[Message, ...]:
        """Builds the messages of a request."""
        return as_messages(self.fill(**values), self.system)


def check_fields(text: str, fields: Sequence[str], *optional: str) -> None:
    """Checks that a prompt has all fields, and no others except optional ones."""
    found, known = FIELD.findall(text), (*fields, *optional)
    if not text.strip():
        raise UserError("the prompt is empty", hint=f"write its text, with {{{known[0]}}} where its value belongs")
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


def split_instruction(text: str, fields: Sequence[str]) -> tuple[list[str], list[str]]:
    """Splits a prompt into the paragraphs before the first of these fields, with `{examples}`, and the others."""
    paragraphs = text.strip().split("\n\n")
    begin = next((i for i, part in enumerate(paragraphs) if set(FIELD.findall(part)) & set(fields)), len(paragraphs))
    instruction, question = paragraphs[:begin], paragraphs[begin:]
    return instruction if EXAMPLES in FIELD.findall(text) else [*instruction, f"{{{EXAMPLES}}}"], question


def join_examples(examples: Sequence[tuple[str, str]]) -> str:
    """Joins questions with their replies as numbered examples; empty without any."""
    texts = [f"Example {number}\n\n{text}\n\n{reply.strip()}" for number, (text, reply) in enumerate(examples, start=1)]
    return "\n\n".join([*texts, JUDGED]) if texts else ""


def as_messages(content: str, system: str) -> tuple[Message, ...]:
    """Builds the messages of a request."""
    return (Message(SYSTEM, system), Message(USER, content)) if system else (Message(USER, content),)


def prompts_folder(package: str, folder: str | None) -> Path:
    """Finds a folder of prompts: the package's own, a user's, or one in the package's by its name."""
    own = Path(str(files(package))) / FOLDER
    if folder is None:
        return own
    path = Path(folder).expanduser()
    return own / folder if len(path.parts) == 1 and not path.is_dir() and (own / folder).is_dir() else path


def read_text_prompt(
    package: str,
    name: str,
    *fields: str,
    folder: str | None = None,
    kept: Sequence[str] = (),
    optional: Sequence[str] = (),
) -> TextPrompt:
    """Reads a prompt of a package or of a user's folder."""

    def build(text: str, system: str) -> TextPrompt:
        return TextPrompt(text, fields, system=system, name=name, kept=tuple(kept), optional=tuple(optional))

    return read_text(package, name, folder, build)


def read_text(package: str, name: str, folder: str | None, build: Callable[[str, str], Built]) -> Built:
    """Reads the text and the system message of a prompt, and builds the prompt.

    Args:
        package: The package with the built-in prompts.
        folder: A user's folder, or one of the package's; None for the built-in prompts.
        build: Builds and checks the prompt.

    Raises:
        UserError: There is no prompt of this name, or a field is missing or unknown.
    """
    root = prompts_folder(package, folder)
    path = root / f"{name}{SUFFIX}"
    if not path.is_file():
        have = sorted(file.stem for file in root.glob(f"*{SUFFIX}"))
        choices = [one for one in have if one != SYSTEM_FILE.removesuffix(SUFFIX)]
        others = ", ".join(f"{one}{SUFFIX}" for one in choices[:5])
        hint = f"write {name}{SUFFIX}" + (f"; here are {others}" if others else "")
        raise UserError(f"there is no prompt {name}", place=str(root), hint=hint)
    system = root / SYSTEM_FILE
    try:
        message = system.read_text(encoding="utf-8").strip() if system.is_file() else ""
        return build(path.read_text(encoding="utf-8"), message)
    except (UserError, UnicodeDecodeError) as error:
        problem = error.problem if isinstance(error, UserError) else "the prompt is not UTF-8 text"
        hint = (isinstance(error, UserError) and error.hint) or "save it as UTF-8"
        raise UserError(problem, place=str(path), hint=hint) from error
