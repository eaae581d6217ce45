"""Defines the detector `thorough`: `default` joined with a language model of 135M that reads context and answer.

    faithkit check --checkpoint thorough --context docs/examples/manual.txt "The warranty lasts 36 months."

    log-odds of a response = a default + b reader + c         (of a word alike)

`default` compares words and values, and finds wrong numbers and units; the reader also finds swapped roles, negations
and additions. It needs half a second to a second for an answer on one thread, and a tenth of that for each further
answer to the same context. `thorough.json` has the weights a, b, c, the thresholds, and the hashes of everything that
they were fitted with.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from critic.reader.model import HINT, Offsets, Reader
from critic.runtime import apply_precision, calibration_requests
from critic.support.alignment import Alignment, Floats
from critic.support.detector import FILE as DEFAULT_FILE
from critic.support.detector import SupportDetector, find_seen
from critic.support.word_model import AIMS, read_fitted
from critic.support.word_states import SHORT
from faithkit.errors import UserError, shorten
from faithkit.files.atomic import hash_file
from faithkit.provenance.used_model import CHECKPOINT, UsedModel
from faithkit.records import PASSAGE_BREAK

NAME = "thorough"
FOLDER = Path(__file__).parent
FILE, ADAPTERS = "thorough.json", "thorough.safetensors"
FORMAT = 1


def find_folder(path: str) -> Path:
    """Returns the folder of a fit."""
    return Path(path).expanduser() if path else FOLDER


@dataclass(frozen=True, kw_only=True)
class Join:
    """The fitted numbers of `thorough.json`.

    Args:
        base: The name of the language model.
        base_sha256: The hash of its weights.
        adapters_sha256: The hash of its adapters.
        default_sha256: The hash of the file of `default`.
        response: a, b and c of a response.
        word: a, b and c of a word.
        model: The thresholds, figures and description, by their names in `WordModel`.
    """

    base: str
    base_sha256: str
    adapters_sha256: str
    default_sha256: str
    response: tuple[float, float, float]
    word: tuple[float, float, float]
    model: dict[str, Any]

    @classmethod
    def read(cls, folder: str) -> "Join":
        """Reads the file in a folder, and verifies its hash and that of the adapters.

        Args:
            folder: That of `python -m faithkit_workflows.fit_reader join`; empty for the one that comes with faithkit.

        Raises:
            UserError: A file was changed.
        """
        path = find_folder(folder) / FILE
        stored = read_fitted(path, FORMAT, HINT)
        try:
            join = cls(**{**stored, "response": tuple(stored["response"]), "word": tuple(stored["word"])})
            is_valid = len(join.response) == len(join.word) == 3 and join.model["aims"].keys() == set(AIMS)
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(f"broken detector file: {shorten(error)}", place=str(path), hint=HINT) from error
        if not is_valid:
            raise UserError("broken detector file: wrong weights or thresholds", place=str(path), hint=HINT)
        if hash_file(path.with_name(ADAPTERS)) != join.adapters_sha256:
            problem = "the adapters were changed: their hash is not that of the fit"
            raise UserError(problem, place=str(path.with_name(ADAPTERS)), hint=HINT)
        return join


class ThoroughDetector(SupportDetector):
    """Joins `default` with a language model.

    Args:
        default: The detector `default`, of which the encoder and the fitted weights are used.
        reader: The language model.
        join: The fitted numbers.
    """

    def __init__(self, default: SupportDetector, reader: Reader, join: Join):
        super().__init__(default.encoder, replace(default.model, **join.model), name=NAME)
        self.reader, self.join = reader, join

    @classmethod
    def load(
        cls,
        path: str = "",
        *,
        device: str | None = None,
        precision: str = "32-true",
        batch_tokens: int | None = None,
    ) -> "ThoroughDetector":
        """Loads the detector.

        Args:
            path: The folder of another fit; empty for the one that comes with faithkit.
            device: `cuda`, `cpu`, ...; None takes a GPU if there is one.
            precision: 32-true, bf16, int8 (CPU), or auto.

        Raises:
            UserError: A file or a model is not the original one.
        """
        join, folder = Join.read(path), find_folder(path)
        default = SupportDetector.load(device=device, precision=precision, batch_tokens=batch_tokens)
        if hash_file(DEFAULT_FILE) != join.default_sha256:
            problem = "default.json is not the file that this detector was fitted with"
            raise UserError(problem, place=str(DEFAULT_FILE), hint=HINT)
        base = {"base": join.base, "base_sha256": join.base_sha256}
        reader = Reader.load(folder / ADAPTERS, **base, device=str(default.device))
        texts = [(one.knowledge, one.question, one.response) for one in calibration_requests()]
        reader.model = apply_precision(reader.model, precision, str(default.device), lambda: reader.read(texts))
        return cls(default, reader, join)

    @classmethod
    def describe(cls, path: str, role: str = CHECKPOINT) -> UsedModel:
        """Describes the detector for the record of where predictions come from."""
        join = Join.read(path)
        description = join.model["description"]
        return UsedModel(
            role=role,
            path=f"{NAME}:{path}" if path else NAME,
            kind=NAME,
            weights=join.adapters_sha256[:32],
            threshold=f"{join.model['threshold']:.4g}, {description.get('threshold', 'as fitted')}",
            find_seen=lambda: find_seen([str(part["name"]) for part in description["fitted_on"]]),
        )

    def __repr__(self) -> str:
        return (
            f"ThoroughDetector({self.join.base!r}, threshold={self.model.threshold:.4g}, device={str(self.device)!r})"
        )

    def _weigh(self, texts: Sequence[tuple[str, str, str]], aligned: Sequence[Alignment]) -> list[tuple[float, Floats]]:
        # Of a long context the reader has the parts that `default` has.
        contexts = [
            PASSAGE_BREAK.join(alignment.parts) if len(context) > SHORT else context
            for (context, _, _), alignment in zip(texts, aligned, strict=True)
        ]
        read = self.reader.read([(context, *text[1:]) for context, text in zip(contexts, texts, strict=True)])
        (a, b, c), (d, e, f) = self.join.response, self.join.word
        joined = []
        for alignment, reading, (odds, logits) in zip(aligned, read, super()._weigh(texts, aligned), strict=True):
            of_words = word_odds(alignment, reading.tokens, reading.offsets)
            joined.append((a * odds + b * reading.verdict + c, d * logits + e * of_words + f))
        return joined


def word_odds(alignment: Alignment, tokens: Sequence[float], offsets: Offsets) -> Floats:
    """Returns the reader's log-odds of each compared word: those of its worst token [words]."""
    starts, ends = np.array([begin for begin, _ in offsets]), np.array([end for _, end in offsets])
    odds = np.array(tokens)
    words = [alignment.words[place] for place in alignment.places]
    found = [odds[(starts < word.end) & (word.start < ends)] for word in words]
    return np.array([inside.max() if len(inside) else odds.min() for inside in found])
