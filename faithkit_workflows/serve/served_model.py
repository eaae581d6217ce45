"""A served detector: it is loaded in a thread, warmed up, judges batches, and can be replaced while it serves."""

import copy
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from faithkit.errors import UserError
from faithkit.evidence import add_evidence
from faithkit.languages import IGNORE, STOP, WARN, find_other_language, languages_of
from faithkit.records import CALLS, Example, join_passages, number_passages
from faithkit_workflows.detectors.actions import add_actions
from faithkit_workflows.serve.schemas import CheckResult, MarkedSpan, Problem, Row, SpanEvidence

log = logging.getLogger("faithkit")
WARM_UP = Row(knowledge="The warranty lasts 24 months.", response="It lasts 36 months.", question="How long?")


@dataclass(frozen=True, slots=True)
class Asked:
    """A row in the queue, with the record that a detector takes."""

    row: Row
    example: Example


class ServedModel:
    """A detector with its name.

    Args:
        config: The keys of `faithkit serve` that a detector takes.
    """

    def __init__(self, name: str, checkpoint: str, config: dict[str, Any]):
        from faithkit_workflows.detectors.loading import kind_of

        self.name, self.checkpoint, self._config = name, checkpoint, config
        self._detector: Any = None
        self._lock = threading.Lock()
        self._found = set[str]()  # languages that were logged
        self.problem: str | None = None  # why it cannot be loaded
        self.threshold_text: str | None = None
        self.created = int(time.time())
        self.kind = kind_of(checkpoint)
        self.join = number_passages if self.kind.numbers_passages else join_passages

    @property
    def is_ready(self) -> bool:
        """Reports whether it has judged a row."""
        return self._detector is not None

    def load(self) -> None:
        """Loads the checkpoint, judges a row with it, and only then puts it in the place of the one that serves.

        A checkpoint that cannot be loaded is logged, and leaves the one that serves.
        """
        from faithkit.fast import return_freed_memory
        from faithkit_workflows.detectors.loading import load_checkpoint, with_threshold

        return_freed_memory()
        with self._lock:
            began = time.perf_counter()
            try:
                config = {**self._config, "checkpoint": self.checkpoint}
                loaded = with_threshold(load_checkpoint(config), self._config["threshold"], self.checkpoint)
                list(loaded.detector.predict_examples([WARM_UP.to_example("warm-up", self.join)]))
            except Exception as error:  # reported by /health/ready; the service goes on with the others
                self.problem = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
                log.error("model %s cannot be loaded: %s", self.name, self.problem)
                return
            self.threshold_text = loaded.models[0].threshold if loaded.models else None
            self._detector, self.problem, self.created = loaded.detector, None, int(time.time())
            log.info("model %s is ready (%.1f s)", self.name, time.perf_counter() - began)

    def judge(self, asked: Sequence[Asked]) -> list[CheckResult | Exception]:
        """Judges a batch; where it fails, each row alone, so that others do not fail with it."""
        detector, found = self._detector, dict[int, CheckResult | Exception]()
        on_language, languages = self._config.get("on_language", WARN), languages_of(detector)
        others = dict[int, str]()
        for place, one in enumerate(asked if on_language != IGNORE else ()):
            if language := find_other_language(one.row.response, one.example.knowledge, languages):
                others[place] = language
                if on_language == STOP:
                    reason, help_ = f"this model does not read {language}", f"send texts in {', '.join(languages)}"
                    found[place] = Problem("language_not_read", reason, help_, field="response")
        if new := set(others.values()) - self._found:
            self._found |= new
            listed = ", ".join(sorted(new))
            log.warning("model %s is asked about texts in a language that it does not read: %s", self.name, listed)
        for threshold in dict.fromkeys(one.row.threshold for one in asked):
            places = [n for n, one in enumerate(asked) if one.row.threshold == threshold and n not in found]
            judge, reason = detector, ""
            if threshold is not None and not hasattr(detector, "set_threshold"):
                reason = "this model has no threshold"
            elif threshold is not None:
                judge = copy.copy(detector)  # `set_threshold` replaces an attribute, so the original keeps its own
                try:
                    judge.set_threshold(threshold)
                except UserError as error:
                    reason = error.problem
            if reason:
                problem = Problem("threshold_not_supported", reason, "leave threshold out", field="threshold")
                found |= dict.fromkeys(places, problem)
                continue
            found |= zip(places, _judge_each(judge, [asked[place] for place in places]), strict=True)
        for place, language in others.items():
            if isinstance(result := found[place], CheckResult):
                result.language = language
        return [found[place] for place in range(len(asked))]


def _judge_each(detector: Any, asked: Sequence[Asked]) -> list[CheckResult | Exception]:
    threshold, unsure_from = getattr(detector, "threshold", None), getattr(detector, "unsure_from", None)
    results: list[CheckResult | Exception] = []
    try:
        predictions = list(detector.predict_examples([one.example for one in asked]))
        for one, prediction in zip(asked, predictions, strict=True):
            if CALLS in one.example.meta:
                prediction = add_actions(prediction, one.row.response, one.example.meta[CALLS])
            if prediction.failed or prediction.label is None:  # the detector's own request failed
                raise Problem("no_verdict", "the model gave no verdict", "try again, or choose another model")
            passages = one.row.passages()
            completed = add_evidence(prediction, [text for _, text in passages], one.row.response)
            spans = []
            for span in completed.spans:
                if (found := span.evidence) is None:
                    continue
                place, places = passages[found.passage][0], {"start": found.start, "end": found.end}
                evidence = SpanEvidence(id=place, text=found.text, reason=found.reason, **places)
                marked: dict[str, Any] = {"text": span.text, "type": span.label, "probability": span.score}
                marked |= {"relation": span.relation, "element": span.element}
                spans.append(MarkedSpan(start=span.start, end=span.end, evidence=evidence, **marked))
            label: Any = prediction.label
            verdict: Any = prediction.verdict(unsure_from)
            given = {"probability": prediction.score, "threshold": threshold}
            results.append(CheckResult(label=label, verdict=verdict, spans=spans, **given))
        return results
    except Exception as error:
        if len(asked) == 1:
            return [error]
    return [verdict for one in asked for verdict in _judge_each(detector, [one])]
