"""Settings of a model are typed and in their ranges: from a sidecar and from Python alike."""

from pathlib import Path
from typing import Any

import pytest

from critic.tagger.span_calibration import SpanCalibration
from data_modules.encoding.sequence_layout import TurnLayout
from faithkit.calibration.score_calibration import ScoreCalibration
from faithkit.detector import CRITIC, GENERATOR, TAGGER
from faithkit.errors import UserError
from faithkit.files.model_folder import SIDECAR
from tests.faults.model_folders import OLDER, copy, refused
from tests.model_folders import edit_json

INFINITE = (float("inf"), -float("inf"))
NUMBERS = (None, True, "0.5", float("nan"), float("inf"), -float("inf"), 1e9, -1, [], {})


@pytest.mark.parametrize("value", NUMBERS, ids=repr)
def test_python_users_get_the_same_checks(value: Any) -> None:
    for kind, name in (
        (ScoreCalibration, "temperature"),
        (ScoreCalibration, "threshold"),
        (SpanCalibration, "char_threshold"),
        (SpanCalibration, "response_threshold"),
        (SpanCalibration, "min_length"),
    ):
        with pytest.raises(UserError, match=f"{name} is"):
            kind(**{name: value})
    for name in ("slope", "bias", "merge_gap", "token_weights", "response_weights"):
        if not (value == -1 and name in ("slope", "bias")) and not (value == [] and name.endswith("weights")):
            with pytest.raises(UserError, match=rf"{name}(\[0\])? (is|has)"):
                SpanCalibration(**{name: value})
    for name in ("max_length", "max_response_length"):
        with pytest.raises(UserError, match=f"model.{name} is"):
            TurnLayout(**{"kind": "causal", "max_length": 100, "max_response_length": 9, name: value})


@pytest.mark.parametrize(
    ("kind", "path", "value", "words"),
    [
        *((CRITIC, ("thresholds", "threshold"), value, "threshold") for value in NUMBERS),
        *((CRITIC, ("thresholds", "temperature"), value, "temperature") for value in (*NUMBERS, 0)),
        (CRITIC, ("thresholds",), {"temperature": 1.0, "aim": "f1"}, "thresholds lacks threshold"),
        (CRITIC, ("thresholds", "aim"), 5, "aim is 5"),
        (CRITIC, ("labels",), ["a", "b"], "labels are"),
        (CRITIC, ("labels",), "faithful", "labels is"),
        (CRITIC, ("kind",), None, "kind is None"),
        (CRITIC, ("layout", "order"), "none", "layout.order is 'none'"),
        *((CRITIC, ("layout", "max_length"), value, "max_length") for value in (*NUMBERS, 5000)),
        *((TAGGER, ("layout", "max_length"), value, "max_length") for value in NUMBERS),
        (TAGGER, ("layout", "token_support"), "yes", "layout.token_support is 'yes'"),
        *((TAGGER, ("thresholds", "char_threshold"), value, "char_threshold") for value in NUMBERS),
        *((GENERATOR, ("layout", "max_length"), value, "max_length") for value in NUMBERS),
        (GENERATOR, ("layout", "architecture"), "none", "architecture"),
        (GENERATOR, ("layout", "kind"), "seq2seq", "layout.kind is 'seq2seq'"),
        (GENERATOR, ("layout", "control"), ["voice", 5], "control"),
        (GENERATOR, ("layout", "control"), None, "control"),
        (GENERATOR, ("thresholds",), {"overlap": [float("nan"), 0.5]}, "NaN|overlap"),
        (GENERATOR, ("thresholds",), {"overlap": [0.5]}, "thresholds.overlap"),
        (GENERATOR, ("origin",), [], "origin is"),
    ],
)
def test_a_field_of_an_older_sidecar_is_typed_and_in_its_range(
    kind: str, path: tuple[str, ...], value: Any, words: str, tmp_path: Path
) -> None:
    folder = copy(tmp_path, kind, OLDER)

    def change(stored: dict[str, Any]) -> None:
        for key in path[:-1]:
            stored = stored[key]
        stored[path[-1]] = value

    edit_json(folder / SIDECAR, change)
    refused(kind, folder, "NaN is no number|Infinity is no number" if value != value or value in INFINITE else words)
    refused(kind, folder, "faithkit.json")
