"""Writes answers to a file so that an interruption costs one portion at most and does not change the file.

Examples are answered in portions, in their order. A resumed run drops a portion that is not whole and goes on behind
the last whole one, so it answers the same portions and ends in the same file.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text
from tqdm.auto import tqdm

from faithkit import signals
from faithkit.detector import Detector
from faithkit.errors import UserError, shorten
from faithkit.evaluation.tables import add_context, fields_table, harmless
from faithkit.files.jsonl import JsonlAppender, parse_prediction, read_numbered_jsonl, write_jsonl
from faithkit.records import Example, Prediction
from workflows.answer_strategy import Answerer


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
    if at_a_time < 1:
        raise UserError(f"save_every_num_rows is {at_a_time}", hint="use 1 or more")
    answers = _written(path, examples, at_a_time)
    with (
        JsonlAppender(path) as file,
        tqdm(total=len(examples), initial=len(answers), desc=path.stem, unit="row", mininterval=0.5) as bar,
    ):
        for begin in range(len(answers), len(examples), at_a_time):
            signals.check()
            asked = examples[begin : begin + at_a_time]
            portion = answerer.answer(asked, bar.update)
            for answer, example in zip(portion, asked, strict=True):
                file.append(line_of(answer, example))
            file.sync()
            answers += portion
    return answers


def _written(path: Path, examples: Sequence[Example], at_a_time: int) -> list[Prediction]:
    """Reads the whole portions of a file, and cuts the file to them.

    Raises:
        UserError: The file answers other examples.
    """
    if not path.exists():
        return []
    with JsonlAppender(path):
        pass  # opening it drops an incomplete last line
    rows, answers = _read_rows(path)
    if len(rows) < len(examples) and len(rows) % at_a_time:
        rows = rows[: len(rows) // at_a_time * at_a_time]
        write_jsonl(path, rows)
    answers = answers[: len(rows)]
    if len(answers) > len(examples):
        raise UserError(f"{len(answers)} answers to {len(examples)} examples", place=str(path), hint=_HINT)
    for number, (answer, example) in enumerate(zip(answers, examples, strict=False), start=1):
        if answer.id != example.id:
            problem = f"answers {shorten(answer.id)} where the data now have {shorten(example.id)}"
            raise UserError(problem, place=f"{path}, line {number}", hint=_HINT)
    return answers


def _read_rows(path: Path) -> tuple[list[dict[str, Any]], list[Prediction]]:
    rows: list[dict[str, Any]] = []
    answers: list[Prediction] = []
    try:
        for number, row in read_numbered_jsonl(path):
            answers.append(parse_prediction(row, f"{path}, line {number}"))
            rows.append(row)
    except UserError as error:
        hint = "delete this line and all behind it: they are answered again"
        raise UserError(error.problem, place=error.place, hint=hint) from error
    return rows, answers


_HINT = "the data have changed since: begin again in another run_dir"


def answers_table(examples: Sequence[Example], answers: Sequence[Prediction], *, limit: int, title: str) -> Table:
    """Shows `limit` answers from all over the data, with knowledge and last turn."""
    table = fields_table(title)
    step = max(1, len(examples) // limit) if limit else 1
    for place in list(range(0, len(examples), step))[:limit]:
        example, answer = examples[place], answers[place]
        add_context(table, example)
        judged = "" if answer.score is None else f"  ({answer.label}, P(hallucinated) {answer.score:.2f})"
        table.add_row("answer", Text(f"{harmless(answer.text, 400)}{judged}"), end_section=True)
    return table
