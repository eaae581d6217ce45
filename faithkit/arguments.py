"""Checks the arguments of the public classes and the fields of records; errors name the value and what to pass.

A check of an argument returns the value as the rest of the code takes it. A list of texts may be a list, a tuple, a
generator, a numpy array or a column of pandas; `place` is the item of a list.
"""

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import wraps
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ParamSpec, TypedDict, TypeVar

from faithkit.errors import UserError, choice_hint, nearest, shorten
from faithkit.records import Example, Turn, passage_text

ASSISTANTS = ("assistant", "bot", "model", "system response", "wizard")  # names of the speaker who answers
ALIASES = {"context": "knowledge", "answer": "response"}  # other names of arguments
QUESTION, HISTORY = "question", "history"
ALL = "all"  # windows of long knowledge
TEXT_HINT = 'give a text, such as "The Danube is long."'
# How Python, numpy and pandas write a missing value.
MISSING = ("None", "nan", "np.float64(nan)", "<NA>", "NaT")
TURNS_HINT = 'give texts, or turns such as ("user", "Is it long?") or {"role": "user", "content": "Is it long?"}'
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class OneResponse(TypedDict, total=False):
    """The names of a call for one response; of two names of an argument one is given."""

    knowledge: Any
    context: Any
    response: str
    answer: str
    history: Any
    question: str | None


class ManyResponses(TypedDict, total=False):
    """The names of a call for a list of responses."""

    knowledge: Any
    context: Any
    response: Iterable[str]
    answer: Iterable[str]
    history: Any
    question: Iterable[str | None] | None


def wrong(name: str, expected: str, value: Any, hint: str, place: str | None = None) -> UserError:
    """Makes the error of an argument: what it must be, and what was passed."""
    return UserError(f"{name} must be {expected}, got {shorten(value)}", place=place, hint=hint)


def explain_keywords(method: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Makes a public method explain unknown and missing arguments, when it is called even if it is a generator.

    `context=` and `answer=` are other names of the arguments `knowledge` and `response`; `question=` is the last turn
    of `history`.
    """
    signature = inspect.signature(method)
    names = [name for name in signature.parameters if name not in ("self", "cls")]

    @wraps(method)
    def explained(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        __tracebackhide__ = True  # pytest shows the caller's line
        for alias in [name for name in kwargs if name in ALIASES and name not in names]:
            name = ALIASES[alias]
            if name in kwargs:
                problem = f"{method.__qualname__}: {alias} and {name} are two names of one argument"
                raise UserError(problem, hint="leave one of them out")
            if name in names:
                kwargs[name] = kwargs.pop(alias)
        if QUESTION in kwargs and HISTORY in names and QUESTION not in names:
            kwargs[HISTORY] = add_question(kwargs.get(HISTORY), kwargs.pop(QUESTION))
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            problem, hint = str(error), f"it takes {', '.join(names)}"
            unknown = [name for name in kwargs if name not in names]
            if unknown:
                problem = f"there is no argument {shorten(unknown[0])}"
                guess = nearest(unknown[0], names, 1)
                hint = f"did you mean {guess[0]}? {hint}" if guess else hint
            raise UserError(f"{method.__qualname__}: {problem}", hint=hint) from error
        return method(*args, **kwargs)

    return explained


def add_question(history: Any, question: Any) -> Any:
    """Adds the question of a response, or of each of several responses, to the turns before it."""
    if question is None:
        return history
    if is_list(question):
        columns = {HISTORY: history, QUESTION: question}
        rows = read_columns({name: column for name, column in columns.items() if column is not None}, QUESTION)
        turns = rows.get(HISTORY) or [None] * len(rows[QUESTION])
        return [add_question(before, asked) for before, asked in zip(turns, rows[QUESTION], strict=True)]
    if not isinstance(question, str):
        raise wrong(QUESTION, "a text, or a list of texts for a list of responses", question, TEXT_HINT)
    if history is None:
        return question
    return [*([history] if isinstance(history, str) else read_iterable(HISTORY, history)), question]


def explain_overloads(method: Callable[..., Result]) -> Callable[..., Result]:
    """Is `explain_keywords` for a method whose overloads declare its arguments, `context=` too."""
    return explain_keywords(method)


def read_path(path: Any, name: str = "path") -> str:
    """Reads where a model is: text or a Path, as text; `name` is the argument's."""
    hint = 'give a run such as "runs/...", its hf/ folder or a hub name'
    if not isinstance(path, str | os.PathLike):
        raise wrong(name, "a text or a Path", path, hint)
    text = os.fspath(path)
    if not isinstance(text, str) or not text.strip():
        raise wrong(name, "a text or a Path that is not empty", path, hint)
    try:
        Path(text).expanduser().stat()
    except (FileNotFoundError, NotADirectoryError):
        return text  # a hub name, or an error that loading explains
    except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL, half a character, an unknown user
        raise UserError(f"{name} cannot be looked up: {shorten(error)}", place=shorten(text), hint=hint) from error
    return text


def read_device(device: Any) -> str | None:
    """Reads the name of a torch device of this machine; None stays None."""
    import torch

    if device is None:
        return None
    names = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    hint = f"use {' or '.join(names)}"
    if not isinstance(device, str | torch.device):
        raise wrong("device", "the name of a device", device, hint)
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError, ImportError, AttributeError) as error:
        raise wrong("device", "a device of this machine", str(device), hint) from error
    return str(device)


def read_choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """Reads one of some words."""
    if not isinstance(value, str) or value not in choices:
        raise UserError(f"{name} is {shorten(value)}", hint=choice_hint(value, choices))
    return value


def read_count(name: str, value: Any) -> int | None:
    """Reads a whole number, numpy's too; None stays None."""
    if value is None:
        return None
    # At most what fits into the arrays that are planned with it.
    if not _is_number(value, Integral) or not 1 <= value <= 2**31 - 1:
        raise wrong(name, "a whole number of 1 or more", value, f"use {name}=64, or leave it out")
    return int(value)


def read_windows(value: Any) -> int | str | None:
    """Reads `max_windows`: a whole number, ALL, or None for what the model was trained with."""
    return ALL if isinstance(value, str) and value == ALL else read_count("max_windows", value)


def choose_windows(wanted: int | str | None, stored: int | None) -> int | None:
    """Returns the number of windows to read; None for all."""
    if isinstance(wanted, str):
        return None
    return stored if wanted is None else wanted


def read_probability(name: str, value: Any) -> float | None:
    """Reads a number from 0 to 1, numpy's too; None stays None."""
    if value is None:
        return None
    if not _is_number(value, Real) or not 0 <= value <= 1:
        raise wrong(name, "a probability from 0 to 1", value, f"use {name}=0.5, or leave it out")
    return float(value)


def _is_number(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)  # a bool is a whole number to Python


def read_flag(name: str, value: Any) -> bool:
    """Reads True or False."""
    if not isinstance(value, bool):
        raise wrong(name, "True or False", value, f"use {name}=True")
    return value


def is_list(value: Any) -> bool:
    """Reports whether a value is accepted as a list: it has one dimension and an order, and is not a text."""
    if isinstance(value, str | bytes | bytearray | Mapping | Set | Turn | Example) or not isinstance(value, Iterable):
        return False
    return getattr(value, "ndim", 1) == 1  # arrays and tables have others


def read_iterable(name: str, value: Any) -> Iterator[Any]:
    """Reads a list of any length, item by item."""
    if not is_list(value):
        hint = f"give a list: {name}=[...]" if isinstance(value, str) else f"give a list, {name}=[...], or one column"
        raise wrong(name, "a list or another iterable", value, hint)
    return iter(value)


def read_list(name: str, value: Any) -> list[Any]:
    """Reads a list whole."""
    return list(read_iterable(name, value))


def read_text(name: str, value: Any, place: str | None = None) -> str:
    """Reads a text that is not empty."""
    if isinstance(value, str) and value and not value.isspace():
        return value
    hint = TEXT_HINT
    if isinstance(value, bytes | bytearray):
        hint = 'decode it: .decode("utf-8")'
    elif shorten(value) in MISSING:
        hint = 'give a text; in pandas leave out rows without one: frame.dropna(subset=["..."])'
    raise wrong(name, "text that is not empty", value, hint, place)


def read_passages(name: str, value: Any, place: str | None = None) -> list[str]:
    """Reads a text, or a list of passages; one that is given twice, as retrieval may do, counts once.

    A passage is a text, or an object with one, {"title": ..., "text": ...} say.
    """
    if isinstance(value, str) or not is_list(value):
        return [read_text(name, value, place)]
    passages = []
    for passage in value:
        try:
            text = passage_text(passage)
        except UserError as error:
            raise UserError(f"{name}: a passage is {error.problem}", place=place, hint=error.hint) from None
        passages.append(read_text(name, text, place))
    if not passages:
        hint = 'give a text or a list of passages, such as ["The Danube is long.", "It ends in the Black Sea."]'
        raise wrong(name, "text that is not empty", value, hint, place)
    return list(dict.fromkeys(passages))


def read_turns(name: str, value: Any, place: str | None = None) -> list[tuple[str | None, str]]:
    """Reads turns, the oldest first, as speaker (None if none is named) and text."""
    if not is_list(value):
        raise wrong(name, "text or turns", value, TURNS_HINT, place)
    found = []
    for turn in value:
        speaker, text = None, turn
        if isinstance(turn, Turn):
            speaker, text = turn.speaker, turn.text
        elif isinstance(turn, Mapping):
            speaker, text = turn.get("speaker", turn.get("role")), turn.get("text", turn.get("content"))
        elif isinstance(turn, tuple) and len(turn) == 2:
            speaker, text = turn
        if not isinstance(text, str) or not isinstance(speaker, str | None):
            raise wrong(name, "text, or turns that are texts or (speaker, text)", turn, TURNS_HINT, place)
        found.append((speaker, text))
    return found


def read_names(name: str, value: Any) -> list[str] | None:
    """Reads a list of words; None stays None."""
    if value is None:
        return None
    return [read_text(name, word, f"item {number}") for number, word in enumerate(read_list(name, value))]


def read_examples(examples: Any) -> Sequence[Example]:
    """Reads records."""
    found = examples if isinstance(examples, list | tuple) else read_list("examples", examples)
    for number, example in enumerate(found):
        if not isinstance(example, Example):
            hint = "make records: faithkit.records.Example(id=..., knowledge=..., response=..., ...)"
            raise wrong("examples", "Example records", example, hint, f"item {number}")
    return found


def read_columns(columns: Mapping[str, Any], first: str) -> dict[str, list[Any]]:
    """Reads the columns of a call for many responses; the first is known to be a list.

    Raises:
        UserError: Another is none, or has another length.
    """
    for name, column in columns.items():
        if not is_list(column):
            hint = f"give {name} as a list too: one for each response"
            raise wrong(name, f"a list, since {first} is one", column, hint)
    rows = {name: list(column) for name, column in columns.items()}
    check_lengths(rows)
    return rows


def read_rows(knowledge: Any, response: Any, history: Any) -> list[tuple[Any, Any, Any]]:
    """Reads what one call passes, for a single response or a list: knowledge, response and history of each.

    Raises:
        UserError: Lists have different lengths, or the response is neither a text nor a list.
    """
    if isinstance(response, str):
        return [(knowledge, response, history)]
    if not is_list(response):
        raise wrong("response", "a text or a list of texts", response, TEXT_HINT)
    columns = {"knowledge": knowledge, "response": response} | ({} if history is None else {HISTORY: history})
    rows = read_columns(columns, "response")
    histories = rows.get(HISTORY, [None] * len(rows["response"]))
    return list(zip(rows["knowledge"], rows["response"], histories, strict=True))


def check_lengths(columns: Mapping[str, Sequence[Any]]) -> None:
    """Refuses lists of different lengths."""
    if len({len(column) for column in columns.values()}) > 1:
        lengths = name_list([f"{len(column)} {name}" for name, column in columns.items()])
        raise UserError(f"lists of different lengths: {lengths}", hint="give as many of each")


def name_list(parts: Sequence[str]) -> str:
    """Joins names as a sentence does: "a, b and c"."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
