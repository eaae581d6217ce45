"""Compares scoring pairs with our `Critic` and with transformers' text-classification pipeline in batches of 32.

Needs: nothing more than faithkit; without --checkpoint the demo's critic is trained first (minutes, once).

python -m speed.score_speed                        with the demo's critic, trained first
python -m speed.score_speed --checkpoint RUN
"""

import argparse
import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speed.measure import Ratio, alternate, report, table
from speed.mixed import DESCRIPTION, demo_critic, mixed_pairs

BATCH_TOKENS = (512, 2048, 8192, 16_384)


def main() -> None:
    """Times the sides in turns, then compares their scores."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--checkpoint", help="a run or hf/ folder")
    parser.add_argument("--pairs", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()

    import torch

    from critic.sequence.scorer import Critic
    from faithkit.files.home import cache_dir
    from faithkit.files.model_folder import find_folder

    torch.set_num_threads(1)
    checkpoint = options.checkpoint or demo_critic(cache_dir("speed"))
    ours, automatic = Critic.load(checkpoint, device="cpu"), Critic.load(checkpoint, device="cpu", precision="auto")
    pairs = mixed_pairs(ours.encoder.tokenizer, options.pairs)
    knowledge, response = [e.knowledge for e in pairs], [e.response for e in pairs]
    theirs = huggingface(str(find_folder(checkpoint)), ours.encoder.max_length)
    inputs = [{"text": k, "text_pair": r} for k, r in zip(knowledge, response, strict=True)]
    sides: dict[str, Any] = {
        "pipeline, fp32": lambda: theirs(inputs),
        "ours, fp32": lambda: ours.score(knowledge, response),
        "ours, precision=auto": lambda: automatic.score(knowledge, response),
    }
    taken = alternate(sides, options.rounds)
    rows = []
    for name, seconds in taken.items():
        ratio = Ratio.of(taken["pipeline, fp32"], seconds)
        rows.append([name, f"{len(pairs) / np.median(seconds):.1f}", ratio])

    temperature = ours.calibration.temperature
    # The pipeline applies no temperature, so it is compared with a critic that has none.
    uncalibrated = Critic(ours.model, ours.encoder, type(ours.calibration)())
    reference = np.array([one["score"] for one in theirs(inputs)])
    own = np.array(uncalibrated.probabilities(knowledge, response))
    fast = automatic.probabilities(knowledge, response)
    calibrated = ours.probabilities(knowledge, response)
    moved = np.abs(fast - calibrated)
    num_flips = int(((fast >= ours.calibration.threshold) != (calibrated >= ours.calibration.threshold)).sum())
    lines = [
        f"{len(pairs)} pairs, {DESCRIPTION}; their mean score is {calibrated.mean():.2f}, its spread "
        f"{calibrated.std():.2f}, the temperature {temperature:.2f}. `precision=auto` here: "
        f"{precision_name(automatic.model)}.",
        table(["side", "pairs a CPU-second", "against the pipeline"], rows),
        f"Largest difference from the pipeline in fp32: {np.abs(own - reference).max():.1e}. Largest difference of "
        f"our fp32 scores over shuffles and batch_tokens {BATCH_TOKENS[0]} to {BATCH_TOKENS[-1]}: "
        f"{spread(ours, knowledge, response, calibrated):.1e}.",
        f"`precision=auto` against fp32: largest difference {moved.max():.3f}, mean {moved.mean():.4f}, "
        f"{num_flips} of {len(pairs)} labels changed; over shuffles and batch_tokens "
        f"{spread(automatic, knowledge, response, fast):.1e}.",
    ]
    report("Scoring", "\n\n".join(lines))


def huggingface(folder: str, max_length: int) -> Any:
    """Builds the pipeline as its documentation shows it; it returns P(hallucinated) of each pair."""
    import torch
    from transformers import pipeline

    from faithkit.records import HALLUCINATED

    made = pipeline("text-classification", model=folder, dtype=torch.float32, device="cpu", batch_size=32)

    def score(inputs: list[dict[str, str]]) -> list[dict[str, float]]:
        every: Any = made(inputs, top_k=None, truncation="only_first", max_length=max_length)
        return [next(one for one in scores if one["label"] == HALLUCINATED) for scores in every]

    return score


def spread(critic: Any, knowledge: list[str], response: list[str], expected: NDArray[np.float64]) -> float:
    """Finds the largest change of any score when its batch has other pairs and another size."""
    before, worst = critic.batch_tokens, 0.0
    for seed, batch_tokens in enumerate(BATCH_TOKENS):
        order = list(range(len(knowledge)))
        random.Random(seed).shuffle(order)
        order = order[: len(order) // 2]
        critic.batch_tokens = batch_tokens
        scores = critic.probabilities([knowledge[i] for i in order], [response[i] for i in order])
        worst = max(worst, float(np.abs(scores - expected[order]).max()))
    critic.batch_tokens = before
    return worst


def precision_name(model: Any) -> str:
    """Names the precision of a loaded model."""
    import torch

    from critic.runtime.precision import Int8Linear

    if any(isinstance(module, Int8Linear) for module in model.modules()):
        return "int8"
    return "bf16" if next(model.parameters()).dtype == torch.bfloat16 else "fp32"


if __name__ == "__main__":
    main()
