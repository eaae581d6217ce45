"""Critic rate: the share of responses that a detector calls hallucinated (Dziri et al. 2022, section 5.2).

Use it as the headline of a generator's faithfulness. It is only as good as the detector: name that beside it, and do
not train or choose answers with the one that you report.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from faithkit.detector import Detector
from faithkit.records import HALLUCINATED, UNPARSED, Example
from faithkit.statistics.intervals import Values


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
