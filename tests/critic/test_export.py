"""A run becomes a folder that plain transformers loads, with a card that says what it is."""

import json
import shutil
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from critic import Critic
from critic.export import export
from critic.sequence.settings import Settings
from critic.weights import load_classifier, rescale_head
from data_modules.encoding.pair_encoder import PairEncoder
from faithkit.calibration import ABOVE_ALL_SCORES, ScoreCalibration
from faithkit.errors import UserError
from faithkit.files.model_folder import Sidecar, read_stored, seal, write_folder
from faithkit.records import Prediction
from faithkit.training.export import Card, model_card

RANDOM = Random(0)
WORDS = "the river is long and city old king plays music in it a".split()
TEXTS = [(" ".join(RANDOM.choices(WORDS, k=20)), " ".join(RANDOM.choices(WORDS, k=8))) for _ in range(200)]
ORIGIN: dict[str, Any] = {"config": {"model": {"weights": "someone/bert"}}, "data": {}}
CALIBRATION = ScoreCalibration(temperature=1.7, threshold=0.75, aim="f1")


class Folded(NamedTuple):
    """A critic whose head contains its calibration, its scores, and the log-odds without the calibration."""

    folder: Path
    scores: list[Prediction]
    odds: NDArray[np.float64]


@pytest.fixture(scope="module")
def folded(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Folded:
    from transformers import AutoTokenizer

    model, folder = load_classifier(str(tiny_bert)), tmp_path_factory.mktemp("folded") / "hf"
    for parameter in model.parameters():  # an untrained model gives nearly the same log-odds to all texts
        parameter.data *= 16 if parameter.ndim == 2 else 1
    encoder = PairEncoder(tokenizer=AutoTokenizer.from_pretrained(tiny_bert), max_length=96)
    knowledge, responses = map(list, zip(*TEXTS, strict=True))
    odds = Critic(model.eval(), encoder, CALIBRATION).odds(encoder.encode_texts(knowledge, responses))
    head = CALIBRATION.line(odds)
    rescale_head(model, *head)
    layout = {"max_length": 96, "order": "knowledge_response", "head": head}
    settings = Settings(**layout, calibration=ScoreCalibration(aim="f1"), origin=ORIGIN)
    write_folder(folder, model, encoder.tokenizer, settings.to_sidecar())
    return Folded(folder, Critic.load(folder).score(knowledge, responses), odds)


def test_the_threshold_becomes_a_half_and_changes_no_label(folded: Folded) -> None:
    labels = [score.label for score in folded.scores]
    assert labels == [CALIBRATION.label(score) for score in CALIBRATION.scores(folded.odds)]
    assert min(labels.count("faithful"), labels.count("hallucinated")) > 20
    assert all((s.label == "hallucinated") == (s.probability >= 0.5) for s in folded.scores)


@pytest.mark.parametrize("threshold", [0.0, 1e-300, 0.5, 1.0, ABOVE_ALL_SCORES])
def test_a_threshold_at_the_edge_changes_no_label_either(threshold: float) -> None:
    calibration, odds = ScoreCalibration(temperature=0.5, threshold=threshold), np.array([-60.0, -30, 0, 18, 30, 60])
    slope, bias = calibration.line(odds)
    assert ((slope * odds + bias >= 0) == (calibration.scores(odds) >= threshold)).all()


def run_pipeline(folder: Path) -> list[dict[str, Any]]:
    from transformers import pipeline

    classify: Any = pipeline("text-classification", model=str(folder), device="cpu")
    return [dict(found) for found in classify([{"text": first, "text_pair": second} for first, second in TEXTS])]


@pytest.mark.parametrize("exported", [False, True])
def test_a_plain_pipeline_gives_the_same_label_and_probability(folded: Folded, tmp_path: Path, exported: bool) -> None:
    if exported:
        export(str(folded.folder), str(tmp_path / "out"))
    found = run_pipeline(tmp_path / "out" if exported else folded.folder)
    assert [one["label"] for one in found] == [score.label for score in folded.scores]
    ours = [s.probability if s.label == "hallucinated" else 1 - s.probability for s in folded.scores]
    assert [one["score"] for one in found] == pytest.approx(ours, abs=1e-6)


def test_one_logit_is_the_same_probability(folded: Folded, trained_tagger: Path, tmp_path: Path) -> None:
    export(str(folded.folder), str(tmp_path / "out"), one_logit=True)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["id2label"] == {"0": "hallucinated"}
    found = [one["score"] for one in run_pipeline(tmp_path / "out")]
    assert found == pytest.approx([score.probability for score in folded.scores], abs=1e-6)
    assert not (tmp_path / "out" / "faithkit.json").exists()
    with pytest.raises(UserError, match="is for critics"):
        export(str(trained_tagger), str(tmp_path / "tagger"), one_logit=True)
    assert not (tmp_path / "tagger").exists()


def test_a_run_is_calibrated_in_its_head(trained: Path, tmp_path: Path) -> None:
    stored = json.loads((trained / "hf" / "faithkit.json").read_text())["thresholds"]
    assert (stored["temperature"], stored["threshold"]) == (1.0, 0.5) and len(stored["head"]) == 2
    assert export(str(trained), str(tmp_path / "out")).difference <= 1e-5
    rows = [json.loads(line) for line in (trained / "predictions" / "embedded.jsonl").read_text().splitlines()]
    scores = Critic.load(trained).score([row["knowledge"] for row in rows], [row["response"] for row in rows])
    assert [score.probability for score in scores] == pytest.approx([row["score"] for row in rows], abs=1e-6)


def test_the_card_has_the_metadata_that_the_hub_reads(trained: Path, tmp_path: Path) -> None:
    from huggingface_hub import ModelCard

    data = ModelCard.load(export(str(trained), str(tmp_path / "out")).folder / "README.md").data
    assert (data.language, data.pipeline_tag, data.base_model) == ("en", "text-classification", None)  # of a folder
    stored = json.loads((trained / "metrics.json").read_text())["metrics"]
    found = {one.metric_name: one for one in data.eval_results}
    assert found["macro_f1"].metric_value == pytest.approx(stored["test/embedded/macro_f1"]["value"], abs=1e-6)
    assert (found["auroc"].metric_type, found["auroc"].dataset_split) == ("roc_auc", "test")


@pytest.mark.parametrize(
    ("weights", "datasets", "expected"),
    [
        ("smollm2-135m", ["embedded-ragtruth"], ("apache-2.0", "HuggingFaceTB/SmolLM2-135M-Instruct", "en", None)),
        ("smollm2-135m", ["snli"], (None, "HuggingFaceTB/SmolLM2-135M-Instruct", "en", ["stanfordnlp/snli"])),
        ("someone/bert", ["tickets"], (None, "someone/bert", None, None)),
    ],
)
def test_metadata_names_what_is_known(weights: str, datasets: list[str], expected: tuple[Any, ...]) -> None:
    from huggingface_hub import ModelCard

    origin = {"config": {"model": {"weights": weights}}, "data": {"sizes": {"train": dict.fromkeys(datasets, 9)}}}
    sidecar = Sidecar(kind="judge", labels=[], layout={}, thresholds={}, origin=origin)
    text = model_card(Card(title="A", purpose="B", usage="C", pipeline=None, limits=()), sidecar, {})
    data: Any = ModelCard(text).data
    assert (data.license, data.base_model, data.language, data.datasets) == expected


def test_an_export_can_be_exported_again_and_overwrites_nothing(trained: Path, tiny_bert: Path, tmp_path: Path) -> None:
    one, two, full = (str(tmp_path / name) for name in ("one", "two", "full"))
    export(str(trained), one)
    export(one, two)
    first, second = (Critic.load(folder).score("a river", "it is long") for folder in (one, two))
    assert first == second
    Path(full).mkdir()
    (Path(full) / "mine").touch()
    for run, folder, problem in ((trained, full, "not empty"), (tiny_bert, "never", r"no faithkit\.json")):
        with pytest.raises(UserError, match=problem):
            export(str(run), str(tmp_path / folder))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "one", "two"]


@pytest.mark.parametrize(("part", "key"), [("thresholds", "threshold"), ("layout", "max_length")])
def test_a_run_whose_settings_lack_a_key_is_to_be_resumed(trained: Path, tmp_path: Path, part: str, key: str) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    stored = read_stored(run / "hf") or {}
    del stored[part][key]
    seal(run / "hf", stored)
    for options in ({}, {"graph": True}):
        with pytest.raises(UserError, match=f"broken sidecar: {part}.{key} is not set") as caught:
            export(str(run), str(tmp_path / "out"), **options)
        assert f"faithkit train resume={run}" in str(caught.value.hint)
    assert not (tmp_path / "out").exists()
