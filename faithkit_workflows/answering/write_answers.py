"""Writes answers to a file so that an interruption costs one portion at most and does not change the file.

Examples are answered in portions, in their order. A resumed run drops a portion that is not whole and goes on behind
the last whole one, so it answers the same portions and ends in the same file.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from rich.table import Table
from rich.text import Text
from tqdm.auto import tqdm

from faithkit import signals
from faithkit.detector import Detector
from faithkit.errors import UserError, shorten
from faithkit.files.jsonl import JsonlAppender, disk_errors, parse_prediction, read_numbered_jsonl
from faithkit.pages.tables import add_context_rows, escape_terminal, new_field_table
from faithkit.records import Example, Prediction
from faithkit_workflows.answering.answer_strategy import Answerer


@dataclass(frozen=True, slots=True)
class DetectorAnswerer:
    """A detector in the place of an answerer: it judges the responses that the examples have."""

    detector: Detector

    def answer(self, examples: Sequence[Example], advance: Callable[[int], object] | None = None) -> list[Prediction]:
        """Judges the examples."""
        predictions = []
        for prediction in self.detector.predict_examples(examples):
            predictions.append(prediction)
            if advance:
                advance(1)
        return predictions


@runtime_checkable
class OfPortions(Protocol):
    """Answers several portions at a time, as a cluster does."""

    def answer_portions(self, portions: Sequence[Sequence[Example]]) -> Iterator[list[Prediction]]:
        """Yields the answers to each portion, in their order."""
        ...


def _answer_alone(answer: Prediction, _: Example) -> dict[str, Any]:
    return answer.to_dict()


def write_answers(
    path: Path,
    examples: Sequence[Example],
    answerer: Answerer,
    *,
    at_a_time: int,
    line_of: Callable[[Prediction, Example], dict[str, Any]] = _answer_alone,
) -> list[Prediction]:
    """Answers the examples that the file lacks; gives the answers to all of them.

    Args:
        path: A predictions file, new or of an interrupted run.
        at_a_time: Examples in a portion.
        line_of: Writes an answer to an example as a line of the file.
    """
    options = {"at_a_time": at_a_time, "line_of": line_of}
    return list(stream_answers(path, examples, len(examples), answerer, **options))  # type: ignore[arg-type]


def stream_answers(
    path: Path,
    examples: Iterable[Example],
    total: int,
    answerer: Answerer,
    *,
    at_a_time: int,
    line_of: Callable[[Prediction, Example], dict[str, Any]] = _answer_alone,
) -> Iterator[Prediction]:
    """Does what `write_answers` does with any number of examples: it holds a portion of them.

    Args:
        total: The number of examples.

    Raises:
        UserError: The file answers other examples.
    """
    if at_a_time < 1:
        raise UserError(f"save_every_num_rows is {at_a_time}", hint="use 1 or more")
    written = _cut_to_whole_portions(path, total, at_a_time)
    rest = iter(examples)
    yield from _written(path, islice(rest, written))
    with (
        JsonlAppender(path) as file,
        tqdm(total=total, initial=written, desc=path.stem, unit="row", mininterval=0.5, disable=None) as bar,
    ):
        for asked, portion in answered_portions(rest, answerer, at_a_time=at_a_time, advance=bar.update):
            for answer, example in zip(portion, asked, strict=True):
                file.append(line_of(answer, example))
            file.sync()
            yield from portion


def answered_portions(
    examples: Iterable[Example],
    answerer: Answerer,
    *,
    at_a_time: int,
    advance: Callable[[int], object] | None = None,
) -> Iterator[tuple[list[Example], Sequence[Prediction]]]:
    """Yields portion after portion of the examples with their answers: what is answered together depends on them alone.

    Args:
        advance: Is told how many more are answered.
    """
    rest = iter(examples)
    portions = iter(lambda: list(islice(rest, at_a_time)), [])
    several = answerer.detector if isinstance(answerer, DetectorAnswerer) else answerer
    if isinstance(several, OfPortions):
        held = list(portions)
        for asked, answers in zip(held, several.answer_portions(held), strict=True):
            signals.check()
            if advance:
                advance(len(asked))
            yield asked, answers
        return
    for asked in portions:
        signals.check()
        yield asked, answerer.answer(asked, advance)


def _cut_to_whole_portions(path: Path, total: int, at_a_time: int) -> int:
    """Cuts a file to its whole portions, and gives the number of its answers.

    Raises:
        UserError: The file has more answers than there are examples.
    """
    if not path.exists():
        return 0
    with JsonlAppender(path):
        pass  # opening it drops an incomplete last line
    ends = [0]  # of portions, in bytes
    count = size = 0
    with path.open("rb") as file:
        for line in file:
            size += len(line)
            count += bool(line.strip())
            if count and count % at_a_time == 0 and line.strip():
                ends.append(size)
    if count > total:
        raise UserError(f"{count} answers to {total} examples", place=str(path), hint=_HINT)
    if count == total or count % at_a_time == 0:
        return count
    with disk_errors(path):
        os.truncate(path, ends[-1])
    return (len(ends) - 1) * at_a_time


def _written(path: Path, examples: Iterable[Example]) -> Iterator[Prediction]:
    """Reads the answers to these examples that a file begins with.

    Raises:
        UserError: It answers others, or a line is broken.
    """
    rows = read_numbered_jsonl(path) if path.exists() else iter(())
    for example in examples:
        try:
            number, row = next(rows)
            answer = parse_prediction(row, f"{path}, line {number}")
        except UserError as error:
            hint = "delete this line and all behind it: they are answered again"
            raise UserError(error.problem, place=error.place, hint=hint) from error
        if answer.id != example.id or row.get("response", example.response) != example.response:
            changed = " with another response" if answer.id == example.id else ""
            problem = f"answers {shorten(answer.id)} where the data now have {shorten(example.id)}{changed}"
            raise UserError(problem, place=f"{path}, line {number}", hint=_HINT)
        yield answer


_HINT = "the data have changed since: begin again in another run_dir"


def answers_table(examples: Sequence[Example], answers: Sequence[Prediction], *, limit: int, title: str) -> Table:
    """Shows `limit` answers from all over the data, with knowledge and last turn."""
    table = new_field_table(title)
    step = max(1, len(examples) // limit) if limit else 1
    for place in list(range(0, len(examples), step))[:limit]:
        example, answer = examples[place], answers[place]
        add_context_rows(table, example)
        judged = "" if answer.score is None else f"  ({answer.label}, P(hallucinated) {answer.score:.2f})"
        table.add_row("answer", Text(f"{escape_terminal(answer.text, 400)}{judged}"), end_section=True)
    return table
