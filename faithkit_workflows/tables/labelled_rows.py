"""States how right the verdicts on a table are: by its labels, or by the errors that the detector made elsewhere."""

import shlex
from array import array
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np

from faithkit.baselines.simple_detectors import REFITTED, cross_fit_baselines
from faithkit.metrics.classification import measure_labels
from faithkit.metrics.judge_error import JudgeError, corrected_rate
from faithkit.metrics.outcomes import join_outcomes
from faithkit.pages.page_tables import escape_terminal, format_percent
from faithkit.provenance.row_keys import group_hash
from faithkit.records import FAITHFUL, HALLUCINATED, LABELS, Example, Prediction
from faithkit.scores.board import Board
from faithkit.statistics.metric import Metric
from faithkit.statistics.spread import count_group_kinds, proportion_from_counts
from faithkit_workflows.tables.shares import Share

MAX_ROWS = 5_000  # labelled rows that are kept to fit baselines and a threshold
MIN_GAIN = 0.01  # of macro-F1, from which another threshold is named
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
        lines.append(
            "  " + ", ".join(f"{name} {format_percent(metrics[k])}" for name, k in _SHOWN.items() if k in metrics)
        )
        return [*lines, *self._compare(metrics, num_resamples=num_resamples)]

    def _compare(self, metrics: Mapping[str, Metric], *, num_resamples: int) -> list[str]:
        """Compares with baselines and with a threshold that are fitted on other folds of the rows."""
        examples = [example for example, _ in self._rows]
        predictions = {prediction.id: prediction for _, prediction in self._rows}
        fitted, names = cross_fit_baselines(examples, predictions, learn=find_spec("sklearn") is not None)
        board, lines, own = Board(num_resamples=num_resamples), [], metrics[HEADLINE].value
        for key, of_baseline in fitted.items():
            board.add(key, measure_labels(join_outcomes(examples, of_baseline)), is_baseline=key != REFITTED)
        if (strongest := board.strongest(HEADLINE)) is not None:
            found = board.metrics(strongest)[HEADLINE]
            better = "better than the detector" if found.value > own else "below the detector"
            lines.append(
                f"  strongest simple baseline, fitted on other folds: {names[strongest]}, macro-F1 "
                f"{format_percent(found)}, {better}"
            )
        refitted = board.metrics(REFITTED)[HEADLINE] if REFITTED in fitted else None
        if refitted is not None and (gain := refitted.value - own) >= MIN_GAIN:
            from faithkit.calibration.thresholds import choose_threshold

            odds = [prediction.score for _, prediction in self._rows]
            chosen = choose_threshold(odds, [e.label == HALLUCINATED for e in examples]).value  # type: ignore[arg-type]
            lines.append(
                f"  threshold={chosen:.3g} is better here: macro-F1 {format_percent(refitted)} where "
                f"the threshold is chosen on other folds, {100 * gain:+.1f} points"
            )
        return lines


_SHOWN = {"precision": "precision", "AUROC": "auroc", "macro-F1": HEADLINE}


def describe_known_errors(share: Share, called: Any, groups: Any, rates: Mapping[str, Any] | None) -> str:
    """States which share is hallucinated by the errors that the detector made on rows it was not fitted on.

    Args:
        share: The share called hallucinated.
        called: 1 for each row that is called hallucinated.
        groups: The group of each row.
        rates: Recall and false alarms of the detector's threshold, and the counts by author that they come from.
    """
    if rates is None or share.metric is None:
        return ""
    counts = np.array(rates["counts"], np.float64)
    corrected = corrected_rate(np.asarray(called, np.float64), [str(one) for one in groups], JudgeError(counts))
    known = (
        f"On {int(counts.sum()):,} other answers this threshold found {rates['recall']:.0%} of the hallucinated ones "
        f"and called {rates['false_alarms']:.0%} of the faithful ones hallucinated."
    )
    if corrected.metric is None:
        return f"{known} Such errors do not explain the share here, so it cannot be corrected."
    return f"{known} With such errors, {format_percent(corrected.metric)} percent of these answers are hallucinated."


def describe_next_steps(path: str, predictions: Any, num_judged: int, *, has_labels: bool) -> str:
    """Names the commands that measure more."""
    quoted = escape_terminal(shlex.quote(path))
    if has_labels:
        evaluate = f"faithkit evaluate benchmark=pairs benchmark.path={quoted}"
        return f"next: faithkit compare {quoted} 'models=[default,...]'; {evaluate} checkpoint=..."
    estimate = escape_terminal(shlex.quote(f"pipeline.predictions={predictions}"))
    number = min(NUM_TO_LABEL, num_judged)
    return (
        f"No labels given, so the errors here are not known: label {number} rows with\n"
        f"  faithkit construct pipeline=estimate {estimate} pipeline.label_next={number}"
    )


NUM_TO_LABEL = 50
