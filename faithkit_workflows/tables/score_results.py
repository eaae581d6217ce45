"""Shows the results of a scored table: its worst rows in the terminal, a page of answers, and test cases for CI.

States how right the verdicts are: by the labels of the table, or by the errors that the detector made elsewhere.
"""

import heapq
import random
import re
import shlex
import shutil
import tempfile
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import numpy as np
from rich.table import Table
from rich.text import Text

from data_modules.datasets.pair_columns import field_of
from faithkit.baselines.simple_detectors import REFITTED, cross_fit_baselines
from faithkit.detector import DEFAULT, THOROUGH
from faithkit.evidence import add_evidence, describe_mark
from faithkit.files.atomic import atomic_file, disk_errors
from faithkit.metrics.classification import evaluate_labels, join_outcomes
from faithkit.metrics.judge_error import JudgeError, corrected_rate
from faithkit.pages.page import FACTS, AgentTurn, AnswerSet, write_page
from faithkit.pages.page_tables import add_fields, escape_terminal, format_percent, new_field_table
from faithkit.provenance.row_keys import group_hash
from faithkit.provenance.used_model import UsedModel
from faithkit.records import FAITHFUL, HALLUCINATED, LABELS, Example, Prediction, split_passages
from faithkit.reports.span_report import STYLES, color_spans, mark_spans
from faithkit.scores.board import Board
from faithkit.statistics.metric import Metric
from faithkit.statistics.spread import count_group_kinds, proportion_from_counts
from faithkit_workflows.tables.shares import Share, ShareCounter, read_turn

MAX_ROWS = 5_000  # labelled rows that are kept to fit baselines and a threshold
HEADLINE = "macro_f1"


class LabelledRows:
    """Keeps the labelled rows of a table, to compare the detector with simple baselines and other thresholds."""

    def __init__(self) -> None:
        self._rows: list[tuple[Example, Prediction]] = []
        self._groups, self._calls = array("Q"), array("b")  # of the faithful rows
        self.num_rows = self._num_wrong = self._num_found = 0

    def add(self, values: Mapping[str, Any], example: Example | None, prediction: Prediction | None) -> None:
        """Adds a row that has a label and a verdict; other rows are left out."""
        if example is None or prediction is None or example.label is None or prediction.label not in LABELS:
            return
        self.num_rows += 1
        is_called = prediction.label == HALLUCINATED
        if example.label == FAITHFUL:
            self._groups.append(group_hash(example.group))
            self._calls.append(is_called)
        else:
            self._num_wrong += 1
            self._num_found += is_called
        if len(self._rows) < MAX_ROWS:
            self._rows.append((example, prediction))

    def describe(self, metrics: Mapping[str, Metric], column: str | None, *, num_resamples: int) -> list[str]:
        """States recall and false alarms, the strongest baseline, and a better threshold where there is one.

        Args:
            metrics: The classification metrics of the labelled rows.
            column: The column of the labels.
        """
        if not self._rows:
            return []
        lines = [f"By the {self.num_rows:,} labels in the column {escape_terminal(str(column), 60)}:"]
        if wrong := self._num_wrong:
            shown = f"{self._num_found:,} of {wrong:,} hallucinated answers are found"
            lines.append(f"  {shown}: recall {format_percent(metrics['recall'])} percent")
        if right := len(self._calls):
            counts = count_group_kinds(np.frombuffer(self._groups, np.uint64), np.frombuffer(self._calls, np.int8))
            alarms = proportion_from_counts(counts, num_resamples=num_resamples)
            shown = f"{sum(self._calls):,} of {right:,} faithful answers are called hallucinated"
            lines.append(f"  {shown}: false alarms {format_percent(alarms)} percent")
        if not wrong or not right:
            return lines
        shown_metrics = (("precision", "precision"), ("AUROC", "auroc"), ("macro-F1", HEADLINE))
        lines.append(
            "  " + ", ".join(f"{name} {format_percent(metrics[k])}" for name, k in shown_metrics if k in metrics)
        )
        # Baselines and another threshold are fitted on other folds of the rows.
        examples = [example for example, _ in self._rows]
        predictions = {prediction.id: prediction for _, prediction in self._rows}
        fitted, names = cross_fit_baselines(examples, predictions, learn=find_spec("sklearn") is not None)
        board, own = Board(num_resamples=num_resamples), metrics[HEADLINE].value
        for key, of_baseline in fitted.items():
            board.add(key, evaluate_labels(join_outcomes(examples, of_baseline)), is_baseline=key != REFITTED)
        if (strongest := board.strongest(HEADLINE)) is not None:
            found = board.metrics(strongest)[HEADLINE]
            better = "better than the detector" if found.value > own else "below the detector"
            lines.append(
                f"  strongest simple baseline, fitted on other folds: {names[strongest]}, macro-F1 "
                f"{format_percent(found)}, {better}"
            )
        refitted = board.metrics(REFITTED)[HEADLINE] if REFITTED in fitted else None
        if refitted is not None and (gain := refitted.value - own) >= 0.01:
            from faithkit.calibration import choose_threshold

            odds = [prediction.score for _, prediction in self._rows]
            chosen = choose_threshold(odds, [e.label == HALLUCINATED for e in examples]).value  # type: ignore[arg-type]
            lines.append(
                f"  threshold={chosen:.3g} is better here: macro-F1 {format_percent(refitted)} where "
                f"the threshold is chosen on other folds, {100 * gain:+.1f} points"
            )
        return lines


def describe_verdicts(
    share: Share, counts: ShareCounter, models: Sequence[UsedModel], checkpoint: str, rates: Mapping[str, Any] | None
) -> list[str]:
    """States how many answers are called hallucinated, and by the known errors how many of them are.

    Args:
        share: The share called hallucinated, of all rows.
        rates: Recall and false alarms of the detector's threshold on rows it was not fitted on, and the counts by
            author that they come from; None where they are not known, or the table has labels.
    """
    threshold = models[0].threshold.partition(",")[0] if len(models) == 1 and models[0].threshold else None
    by = f"threshold {threshold}, model {checkpoint}" if threshold else f"model {checkpoint}"
    lines = [f"{share.num_hallucinated:,} of {share.num_rows:,} answers called hallucinated ({by})."]
    lines += [line] if (line := counts.describe_verdicts()) else []
    if rates is None or share.metric is None:
        return lines
    table, (called, groups) = np.array(rates["counts"], np.float64), counts.calls
    corrected = corrected_rate(np.asarray(called, np.float64), [str(one) for one in groups], JudgeError(table))
    known = (
        f"On {int(table.sum()):,} other answers this threshold found {rates['recall']:.0%} of the hallucinated ones "
        f"and called {rates['false_alarms']:.0%} of the faithful ones hallucinated."
    )
    result = "Such errors do not explain the share here, so it cannot be corrected."
    if (found := corrected.metric) is not None:
        result = f"With such errors, {format_percent(found)} percent of these answers are hallucinated."
        if found.low is not None and found.high is not None and found.high - found.low > MAX_WIDTH:
            result = "These are too few rows to correct the share by such errors."
    return [*lines, f"{known} {result}"]


def describe_next_steps(
    path: str,
    predictions: Any,
    num_judged: int,
    counts: ShareCounter,
    column: str | None,
    checkpoint: str,
    *,
    has_labels: bool,
) -> list[str]:
    """Names the commands that measure more, and that state the meaning of labels that is not known."""
    lines, quoted = [], escape_terminal(shlex.quote(path))
    command = ["faithkit", "evaluate", "benchmark=pairs", f"benchmark.path={path}", f"checkpoint={checkpoint}"]
    evaluate = escape_terminal(shlex.join(command))
    if counts.num_unknown:
        name = escape_terminal(str(column), 60)
        lines.append(
            f"note: the meaning of {counts.num_unknown:,} labels in the column {name} is not known; to state it:\n"
            f"  {evaluate} 'benchmark.labels={{1: hallucinated, 0: faithful}}'"
        )
    if has_labels:
        models = shlex.quote(f"models=[{DEFAULT},{THOROUGH if checkpoint == DEFAULT else checkpoint}]")
        return [*lines, f"next: faithkit compare {quoted} {escape_terminal(models)}; {evaluate}"]
    estimate = escape_terminal(shlex.quote(f"pipeline.predictions={predictions}"))
    number = min(50, num_judged)
    lines.append(
        f"No labels given, so the errors here are not known: label {number} rows with\n"
        f"  faithkit construct pipeline=estimate {estimate} pipeline.label_next={number}"
    )
    return lines


MAX_WIDTH = 0.9  # of an interval that is shown
NUM_SHOWN = 5  # rows in the terminal
MAX_CHARACTERS = 20_000_000  # of all texts on the page
NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# With the values of the columns to count by, and the row's place in a conversation.
Judged = tuple[Example, Prediction, Mapping[str, str], AgentTurn | None]


class KeptRows:
    """Keeps the rows that are shown of a table of any size: the worst ones, and a random sample of the others.

    Args:
        by: Columns whose values are kept with each row.
    """

    def __init__(self, by: Sequence[str], num_worst: int = 500, num_sampled: int = 500):
        self._by, self._num_worst, self._num_sampled = by, num_worst, num_sampled
        self._worst: list[tuple[tuple[bool, float, int], Judged]] = []
        self._sample: list[Judged] = []
        self._random = random.Random(0)
        self.num_rows = self._num_others = 0

    def add(self, values: Mapping[str, Any], example: Example | None, prediction: Prediction | None) -> None:
        """Adds a row; one that could not be judged is left out."""
        if example is None or prediction is None:
            return
        self.num_rows += 1
        rank = (prediction.label == HALLUCINATED, prediction.score or 0.0, -self.num_rows)
        turn = read_turn(values)
        if turn is not None:
            prediction = add_evidence(prediction, values["context"], example.response)
        row = (example, prediction, {column: str(field_of(values, column)) for column in self._by}, turn)
        if len(self._worst) < self._num_worst:
            heapq.heappush(self._worst, (rank, row))
            return
        _, other = heapq.heappushpop(self._worst, (rank, row))
        self._num_others += 1
        if len(self._sample) < self._num_sampled:
            self._sample.append(other)
        elif (place := self._random.randrange(self._num_others)) < self._num_sampled:
            self._sample[place] = other

    def __iter__(self) -> Iterator[Judged]:
        """Yields the worst rows, the most probably hallucinated first, then the sample."""
        yield from (row for _, row in sorted(self._worst, key=lambda one: one[0], reverse=True))
        yield from self._sample

    def describe(self, num_shown: int) -> str:
        """Describes which rows are on the page; empty if it has all rows of the table."""
        worst, sampled, notes = len(self._worst), len(self._sample), []
        if self._num_others > sampled:
            notes = [
                f"{worst + sampled:,} of {self.num_rows:,} answers are here: the {worst:,} "
                f"with the highest probability and a random sample of {sampled:,} others."
            ]
        if num_shown < worst + sampled:
            notes.append(f"Their texts are long: the first {num_shown:,} of {worst + sampled:,} are here.")
        return " ".join([*notes, "The scored table has all rows."]) if notes else ""


def worst_table(rows: KeptRows) -> Table | None:
    """Shows the worst rows called hallucinated with their unsupported parts; None if there are none."""
    worst = [row for _, row in zip(range(NUM_SHOWN), rows, strict=False) if row[1].label == HALLUCINATED]
    if not worst:
        return None
    marks = ", unsupported parts in [[ ]]" if any(prediction.spans for _, prediction, *_ in worst) else ""
    table = new_field_table(f"Most probably hallucinated{marks}")
    for example, prediction, *_ in worst:
        probability = "-" if prediction.score is None else f"{prediction.score:.2f}"
        fields: dict[str, str | Text] = {"row": f"{example.id}  P(hallucinated) {probability}"}
        if example.history:
            fields["question"] = example.history[-1].text
        spans = [replace(span, score=None) for span in prediction.spans]
        fields["answer"] = color_spans(
            mark_spans(example.response, spans, context=60, max_characters=400), STYLES["gold"]
        )
        if prediction.spans:
            completed = add_evidence(prediction, split_passages(example.knowledge), example.response)
            fields["why"] = "; ".join(describe_mark(span, max_characters=60) for span in completed.spans[:3])
        add_fields(table, fields, max_characters=150)
    return table


def write_answers_page(
    path: Path, name: str, rows: KeptRows, *, about: Sequence[str], table: Table, texts: bool
) -> None:
    """Writes the page of the kept rows, as far as their texts are no more than `MAX_CHARACTERS`."""
    shown: list[Judged] = []
    size, contexts = 0, set[str]()
    for row in rows if texts else [*rows]:
        example = row[0]
        size += len(example.response) + sum(len(turn.text) for turn in example.history)
        size += 0 if example.knowledge in contexts else len(example.knowledge)
        contexts.add(example.knowledge)
        for call in row[3].calls if row[3] else ():
            size += 0 if call["result"] in contexts else len(call["result"]) + len(call["arguments"])
            contexts.add(call["result"])
        if shown and texts and size > MAX_CHARACTERS:
            break
        shown.append(row)
    note = rows.describe(len(shown))
    answers = AnswerSet(
        name=name,
        examples=[example for example, *_ in shown],
        predictions={prediction.id: prediction for _, prediction, *_ in shown},
        tables=[table],
        by={
            column: {example.id: values[column] for example, _, values, _ in shown}
            for column in (shown[0][2] if shown else ())
            if column not in FACTS
        },
        turns={example.id: turn for example, _, _, turn in shown if turn is not None},
    )
    has_marks = texts and any(prediction.spans for _, prediction, *_ in shown)
    shows = "the parts that the model calls unsupported" if has_marks else "the model's verdicts"
    write_page(path, [answers], title=f"Answers and {shows}", about=[*about, note] if note else about, texts=texts)


class TestCases:
    """Writes a JUnit report with a test case for each row: hallucinated ones fail, those without a verdict are skipped.

    The turns of a conversation have its name as their class, by which viewers group test cases.

    Args:
        name: The table's.
    """

    __test__ = False  # of pytest

    def __init__(self, name: str):
        self._name = name
        self._cases = tempfile.SpooledTemporaryFile(max_size=1 << 22)  # noqa: SIM115  closed with the object
        self._num_rows = self._num_failures = self._num_skipped = 0

    def add(self, values: Mapping[str, Any], example: Example | None, prediction: Prediction | None) -> None:
        """Adds a row, with or without a verdict."""
        self._num_rows += 1
        name = f"row {self._num_rows}" if example is None else example.id
        turn = read_turn(values)
        group = self._name if turn is None else f"{self._name}.{turn.conversation}"
        inner = ""
        if example is None or prediction is None or prediction.label not in LABELS:
            self._num_skipped += 1
            inner = '<skipped message="no verdict"/>'
        elif prediction.label == HALLUCINATED:
            self._num_failures += 1
            completed = add_evidence(prediction, split_passages(example.knowledge), example.response)
            parts = [describe_mark(span) for span in completed.spans]
            probability = "" if prediction.score is None else f" with probability {prediction.score:.2f}"
            message = f"hallucinated{probability}{': unsupported: ' if parts else ''}{'; '.join(parts)}"
            text = escape(NOT_IN_XML.sub("", mark_spans(example.response, prediction.spans)))
            inner = f'<failure type="hallucinated" message={_quote(message)}>{text}</failure>'
        with disk_errors(tempfile.gettempdir()):
            self._cases.write(f"<testcase classname={_quote(group)} name={_quote(name)}>{inner}</testcase>\n".encode())

    def write(self, path: Path) -> None:
        """Writes the report, replacing the file in one step."""
        counts = f'tests="{self._num_rows}" failures="{self._num_failures}" skipped="{self._num_skipped}" errors="0"'
        self._cases.seek(0)
        with atomic_file(path) as file, disk_errors(path):
            head = (
                f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites {counts}>\n<testsuite name={_quote(self._name)} '
            )
            file.write(f"{head}{counts}>\n".encode())
            shutil.copyfileobj(self._cases, file)
            file.write(b"</testsuite>\n</testsuites>\n")


def _quote(text: str) -> str:
    return quoteattr(NOT_IN_XML.sub("", text))
