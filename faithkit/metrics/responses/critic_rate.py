"""Critic rate: the share of responses that a detector calls hallucinated (Dziri et al. 2022, section 5.2).

Use it as the headline of a generator's faithfulness. It is only as good as the detector: name the detector in reports,
and do not train or choose answers with the one that you report. A second judge of another kind (an NLI model, counted
words), which makes other errors, shows which differences do not depend on the judge.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from faithkit.detector import Detector
from faithkit.metrics.judge_error import JudgeError
from faithkit.records import HALLUCINATED, UNPARSED, Example
from faithkit.statistics.spread import Values

CRITIC = "critic"  # the judge of the headline


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseJudge:
    """A detector that judges responses.

    Args:
        key: Begins the names of its metrics: `<key>_rate`, `<key>_rate_corrected`.
        name: Its name in tables.
        error: Its errors on labelled rows; None where there are none.
    """

    key: str
    name: str
    detector: Detector
    error: JudgeError | None = None


def critic_rate(
    detector: Detector,
    examples: Sequence[Example],
    responses: Sequence[str],
    *,
    key: str = CRITIC,
    progress: bool = False,
) -> dict[str, Values]:
    """Computes `<key>_rate`, 1 where hallucinated, and `<key>_score`, P(hallucinated) [N].

    NaN for a reply of the detector that could not be parsed, and where it gives no score.
    """
    judged = detector.predict_examples(
        [replace(example, response=text, spans=None) for example, text in zip(examples, responses, strict=True)],
        progress=progress,
    )
    rows = [
        (
            np.nan if prediction.label == UNPARSED else float(prediction.label == HALLUCINATED),
            np.nan if prediction.score is None else prediction.score,
        )
        for prediction in judged
    ]
    rates, scores = np.array(rows, np.float64).reshape(-1, 2).T
    return {f"{key}_rate": rates, f"{key}_score": scores}
