"""A detector of another package, declared by an entry point, works wherever a detector is named."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.running import ROOT, values_of

PACKAGE = '''
from faithkit.scores.measures import Measure
from faithkit.detector import DetectorKind
from faithkit.records import Prediction
from faithkit.statistics.metric import PROPORTION

KIND = DetectorKind(name="shouting", target="shouting:ShoutingDetector")
ASKS_BACK = Measure(
    "asks back", PROPORTION, compute=lambda examples, responses: [text.endswith("?") for text in responses]
)


class ShoutingDetector:
    """Labels responses with enough capital letters hallucinated."""

    def __init__(self, minimum):
        self.minimum = minimum

    @classmethod
    def load(cls, path, *, precision, batch_tokens):
        return cls(float(path))

    def set_threshold(self, threshold):
        self.minimum = threshold

    def predict_examples(self, examples, *, progress=False):
        for one in examples:
            share = sum(c.isupper() for c in one.response) / max(len(one.response), 1)
            yield Prediction(id=one.id, label="hallucinated" if share >= self.minimum else "faithful", score=share)
'''


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH with the package and its metadata, as pip installs them."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "shouting.py").write_text(PACKAGE)
    (folder / "capitals.py").write_text("from shouting import *\n")  # whose name is no kind
    metadata = folder / "shouting-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[faithkit.detectors]\nshouting = shouting:KIND\nbroken = no_such_module:KIND\nother = shouting:ASKS_BACK\n"
        "[faithkit.metrics]\nasks_back = shouting:ASKS_BACK\n"
    )
    return folder


def run(site: Path, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{site}"}
    line = [sys.executable, "-W", "ignore", *command]
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


def test_evaluate_a_cascade_best_of_n_and_a_test_use_it(site: Path, tmp_path: Path) -> None:
    table = tmp_path / "labelled.csv"
    rows = ("k 1,NO NO,hallucinated", "k 2,yes it is,faithful", "k 3,STOP,hallucinated", "k 4,it is,faithful")
    table.write_text("\n".join(["knowledge,response,label", *rows]) + "\n")
    command = ["-m", "faithkit", "evaluate", "benchmark=pairs", f"benchmark.path={table}", "checkpoint=shouting:0.5"]
    done = run(site, tmp_path, *command, "run_dir=evaluated", "num_resamples=20")
    assert "plug-in broken (no_such_module:KIND) is left out: ModuleNotFoundError" in done.stderr
    assert "plug-in other (shouting:ASKS_BACK) is left out: it is no DetectorKind" in done.stderr
    assert values_of(tmp_path / "evaluated")["test/pairs/accuracy"] == 1.0
    code = """
import pytest
from faithkit import Cascade, assert_faithful
from faithkit.errors import UserError
from faithkit.metrics.responses.measure_responses import MetricModels, measure_responses
from faithkit.scores.measures import add_measures
from faithkit.records import Example
from faithkit_workflows.detectors.loading import load_detector

detector = load_detector("capitals:ShoutingDetector:0.5", precision="32-true", batch_tokens=None)
place = {"source": "s", "split": "t", "group": "g", "knowledge": "k"}
rows = [Example(id=text, response=text, **place) for text in ("NO", "no")]
cascade = Cascade.fit(detector, detector, rows, budget=1.0)
assert [found.label for found in cascade.predict_examples(rows)] == ["hallucinated", "faithful"]
assert_faithful("the river is long", "it is long", by="shouting:0.5")
examples = [Example(id=str(i), response="r", **place) for i in range(2)]
for add in ([], ["capitals:ASKS_BACK"]):
    add_measures(add)
    assert list(measure_responses(examples, ["Who?", "I."], MetricModels()).columns["asks_back"]) == [1.0, 0.0]
with pytest.raises(UserError, match="not a Measure with compute="):
    add_measures(["capitals:KIND"])
with pytest.raises(UserError, match="capitals:Prediction is no detector: it has no load"):
    load_detector("capitals:Prediction", precision="32-true", batch_tokens=None)
with pytest.raises(AssertionError, match="IT IS"):
    assert_faithful(["k", "k"], ["fine", "IT IS"], ["who?", None], by="shouting:0.5")
"""
    run(site, tmp_path, "-c", code)
