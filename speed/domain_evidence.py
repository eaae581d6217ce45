"""The side of `speed.domains` whose encoder stays as it came: evidence of each row once, a few weights for each fold.

A critic with `model.evidence=words_and_tokens model.evidence_alone=true` trains no network, so its folds differ in a
few weights alone. This side reads every row by the critic's own code and keeps what it found; each fold then
fits the weights as `critic.sequence.task` does, without its domain and its kin. Against train.py there are two
differences: a
dataset is a domain here, and the threshold is chosen on the rows that the weights are fitted on.
"""

import hashlib
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from critic.logistic import linear
from critic.sequence.evidence import fit_evidence
from critic.sequence.scorer import Critic
from critic.sequence.task import FIT_ROWS
from critic.weights import load_classifier
from data_modules.encoding.pairs import PairEncoder
from data_modules.encoding.tokens import load_tokenizer
from faithkit.calibration.aims import ARGMAX
from faithkit.calibration.score_calibration import ScoreCalibration
from faithkit.errors import UserError
from faithkit.files.atomic import atomic_file
from faithkit.records import HALLUCINATED, Example, Prediction
from faithkit.weights.resolve import loading
from faithkit.words import VERSION as WORDS_VERSION
from faithkit_workflows.domains.model_key import model_key
from faithkit_workflows.domains.rows import Rows
from speed.domain_sides import Fold

Floats = NDArray[np.float64]
PIECE = 256  # rows that are read and kept at a time


class DomainEvidence:
    """Reads evidence with the encoder of some weights as it comes, and keeps it in a folder.

    Args:
        weights: Of the encoder.
        not_from: Domains that no fold learns from.
    """

    def __init__(self, folder: Path, *, weights: str, precision: str, not_from: Sequence[str] = ()):
        from critic.runtime.precision import apply_precision

        with loading(weights) as source:
            tokenizer = load_tokenizer(source)
        encoder = PairEncoder(tokenizer=tokenizer, max_length=256, evidence=True, whole=True)
        # All that the figures depend on beside the rows: two encoders may have one name, in folders of their own.
        parts = "\0".join((model_key(weights), encoder.fingerprint(), str(WORDS_VERSION)))
        digest = hashlib.blake2b(parts.encode(), digest_size=8).hexdigest()
        self.folder, self.not_from = folder / f"{Path(weights).name}-{digest}-{precision}", set(not_from)
        model = apply_precision(load_classifier(weights).eval(), precision, "cpu", lambda: None)
        self.critic = Critic(model, encoder, ScoreCalibration())
        self._known: dict[str, Floats] = {}
        for path in sorted(self.folder.glob("*.npz")):
            with np.load(path, allow_pickle=False) as kept:
                self._known |= dict(zip(kept["keys"].tolist(), kept["values"], strict=True))

    def of(self, examples: Sequence[Example]) -> Floats:
        """Gives the evidence of examples [examples, features]; the log-odds, which nothing weighs, are 0."""
        keys = [_key(example) for example in examples]
        missing = {key: one for key, one in zip(keys, examples, strict=True) if key not in self._known}
        for begin in range(0, len(missing), PIECE):
            self._read(dict(list(missing.items())[begin : begin + PIECE]))
        return np.stack([self._known[key] for key in keys])

    def _read(self, rows: Mapping[str, Example]) -> None:
        begin, examples = time.perf_counter(), list(rows.values())
        columns = self.critic.encoder.encode_texts([e.knowledge for e in examples], [e.response for e in examples])
        found = self.critic.evidence(columns, own=False)
        self.folder.mkdir(parents=True, exist_ok=True)
        with atomic_file(self.folder / f"{next(iter(rows))}.npz") as file:
            np.savez(file, keys=list(rows), values=found)
        self._known |= dict(zip(rows, found, strict=True))
        took = time.perf_counter() - begin
        print(f"evidence of {examples[0].id} and on: {took:.0f} s", file=sys.stderr, flush=True)

    def predict(self, fold: Fold) -> dict[str, Prediction]:
        """Fits the weights and the calibration of a fold on the other domains, and predicts its tested rows."""
        train = {name: rows.capped(FIT_ROWS).shown for name, rows in learnt_from(fold, self.not_from).items()}
        evidence = np.concatenate([self.of(rows) for rows in train.values()])
        gold = np.array([one.label == HALLUCINATED for rows in train.values() for one in rows], np.int8)
        weights, note = fit_evidence(evidence, gold, [name for name, rows in train.items() for _ in rows], own=False)
        if note:
            print(f"{fold.name}: {note}", file=sys.stderr, flush=True)
        calibration, _ = ScoreCalibration.fit(linear(evidence, weights), gold, ARGMAX)
        tested = fold.tested.shown
        scores = calibration.scores(linear(self.of(tested), weights))
        return {one.id: one for one in calibration.predictions([example.id for example in tested], scores)}


def learnt_from(fold: Fold, not_from: Collection[str]) -> dict[str, Rows]:
    """Chooses the domains that a fold learns from: those that have rows, less those that are named.

    Raises:
        UserError: None is left.
    """
    found = {name: rows for name, rows in fold.train.items() if len(rows) and name not in not_from}
    if not found:
        left_out = f" without {', '.join(sorted(not_from))}" if not_from else ""
        hint = "name fewer domains after --not-from, or read more of them"
        raise UserError(f"the fold of {fold.name} has no domain to learn from{left_out}", hint=hint)
    return found


def _key(example: Example) -> str:
    text = f"{example.knowledge}\0{example.response}"
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=12).hexdigest()


def evidence_sides(
    folds: Sequence[Fold], folder: Path, *, weights: str, precision: str, not_from: Sequence[str]
) -> Mapping[str, Mapping[str, Prediction]]:
    """Predicts every fold by words, runs and the weakest tokens, from the shortest texts to the longest."""
    reader = DomainEvidence(folder, weights=weights, precision=precision, not_from=not_from)
    for fold in sorted(folds, key=lambda fold: sum(len(one.knowledge) for one in fold.tested.shown)):
        reader.of(fold.tested.shown)
    return {fold.name: reader.predict(fold) for fold in folds}
