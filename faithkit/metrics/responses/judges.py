"""Critic rate: the share of responses that a detector calls hallucinated (Dziri et al. 2022, section 5.2).

Use it as the headline of a generator's faithfulness. It is only as good as the detector: name that beside it, and do
not train or choose answers with the one that you report.

Several judges of the same responses, each beside its own error on labelled rows.

One critic's rate is only as good as the critic. A judge of another kind (an NLI model, counted words), which errs in
other ways, tells which differences do not depend on the judge.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from faithkit.detector import Detector
from faithkit.metrics.judge_error import JudgeError
from faithkit.records import HALLUCINATED, UNPARSED, Example
from faithkit.statistics.spread import Values

CRITIC = "critic"  # the judge whose rate is the headline; its columns are those of `critic_rate`


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseJudge:
    """A detector that judges responses.

    Args:
        key: Begins the names of its metrics: `<key>_rate`, `<key>_rate_corrected`.
        name: The judge, as a table names it.
        error: How it errs on labelled rows; None where there are none.
    """

    key: str
    name: str
    detector: Detector
    error: JudgeError | None = None


def judge_columns(
    judges: Sequence[ResponseJudge], examples: Sequence[Example], responses: Sequence[str], *, progress: bool = False
) -> dict[str, Values]:
    """Gives each judge's verdicts and scores: `<key>_rate` and `<key>_score` [N]."""
    columns: dict[str, Values] = {}
    for judge in judges:
        found = critic_rate(judge.detector, examples, responses, progress=progress)
        columns |= {name.replace(CRITIC, judge.key, 1): column for name, column in found.items()}
    return columns


def critic_rate(
    detector: Detector, examples: Sequence[Example], responses: Sequence[str], *, progress: bool = False
) -> dict[str, Values]:
    """Computes `critic_rate`, 1 where hallucinated, and `critic_score`, P(hallucinated) [N].

    NaN for a reply of the detector that could not be parsed, and for a score that it does not give.
    """
    asked = [
        replace(example, response=response, spans=None) for example, response in zip(examples, responses, strict=True)
    ]
    judged = list(detector.predict_examples(asked, progress=progress))
    called = [
        np.nan if prediction.label == UNPARSED else float(prediction.label == HALLUCINATED) for prediction in judged
    ]
    scores = [np.nan if prediction.score is None else prediction.score for prediction in judged]
    return {"critic_rate": np.array(called, np.float64), "critic_score": np.array(scores, np.float64)}
