"""Each fault of a model's folder is refused by name before anything is scored; what is whole loads everywhere."""

import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from critic import Critic
from critic.weights import load_classifier
from faithkit.calibration.score_calibration import ScoreCalibration
from faithkit.detector import CRITIC, GENERATOR, JUDGE, TAGGER
from faithkit.errors import UserError
from faithkit.files.model_folder import SIDECAR, read_sidecar
from tests.faults.model_folders import FOREIGN, MODELS, OLDER, SEALED, copy, refused, wanted, whole_folder
from tests.model_folders import (
    Change,
    config,
    cut,
    data,
    drop,
    edit_json,
    empty,
    flip,
    make_foreign,
    make_older,
    rename,
    text,
    without,
)
from tests.running import run

KINDS = (CRITIC, TAGGER, GENERATOR, JUDGE)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Our messages."""
    with caplog.at_level(logging.INFO, "faithkit"):
        yield caplog


TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("maker", [SEALED, OLDER])
def test_what_is_whole_is_used(kind: str, maker: str) -> None:
    assert wanted(kind, maker) == wanted(kind, SEALED)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (flip("model.safetensors"), "model.safetensors was changed or damaged"),
        (flip("tokenizer.json"), "tokenizer.json was changed or damaged"),
        (config(hidden_size=64), "config.json was changed or damaged"),
        (without("tokenizer_config.json"), "tokenizer_config.json is missing"),
        (without("config.json"), "config.json is missing"),
        (without("model.safetensors"), "model.safetensors is missing"),
        (text("model-00002-of-00002.safetensors", "x"), "model-00002-of-00002.safetensors was not written with"),
        (text("adapter_config.json", "{}"), "adapter_config.json was not written with"),
        (without(SIDECAR), "faithkit.json is missing"),
        (empty(SIDECAR), "faithkit.json is empty|the file is empty"),
        (lambda folder: edit_json(folder / SIDECAR, lambda stored: stored.pop("hashes") and None), "lacks 'hashes'"),
        (
            lambda folder: edit_json(folder / SIDECAR, lambda stored: stored["origin"].update(a=1)),
            "json was changed",
        ),
    ],
)
def test_a_file_that_is_not_as_it_was_written(kind: str, change: Change, words: str, tmp_path: Path) -> None:
    folder = copy(tmp_path, kind)
    change(folder)
    refused(kind, folder, words)


def test_a_card_or_a_licence_may_be_added(tmp_path: Path) -> None:
    folder = copy(tmp_path, CRITIC)
    for name in ("README.md", "LICENSE", ".gitattributes"):
        (folder / name).write_text("mine")
    assert MODELS[CRITIC].use(folder) == wanted(CRITIC, SEALED)


@pytest.mark.parametrize("maker", [OLDER, FOREIGN])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["config.json", *TOKENIZER, "model.safetensors"])
def test_a_file_of_0_bytes_is_named(kind: str, maker: str, name: str, tmp_path: Path) -> None:
    folder = copy(tmp_path, kind, maker)
    empty(name)(folder)
    refused(kind, folder, f"{name} is empty|at: .*{name}")


LAYER = {CRITIC: "encoder.layer.0.", TAGGER: "encoder.layer.0.", GENERATOR: "layers.1.", JUDGE: "layers.1."}
HEAD = {CRITIC: "classifier", TAGGER: "classifier", GENERATOR: "lm_head", JUDGE: "lm_head"}


@pytest.mark.parametrize("maker", [OLDER, FOREIGN])
@pytest.mark.parametrize("kind", KINDS)
def test_missing_tensors_are_never_random(kind: str, maker: str, tmp_path: Path) -> None:
    folder = copy(tmp_path, kind, maker)
    weights = (folder / "model.safetensors").read_bytes()
    for part in (HEAD[kind], LAYER[kind], ""):
        (folder / "model.safetensors").write_bytes(weights)
        drop(part)(folder)
        refused(kind, folder, "the weights lack")
    (folder / "model.safetensors").write_bytes(weights)
    rename(HEAD[kind], "unknown_head")(folder)
    refused(kind, folder, "the weights lack")


@pytest.mark.parametrize("maker", [OLDER, FOREIGN])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (config(num_hidden_layers=2), "the weights lack bert.encoder.layer.1."),
        (config(num_hidden_layers=0), "the weights have bert.encoder.layer.0.*no place"),
        (config(num_hidden_layers=10**9), "num_hidden_layers is 1000000000"),
        (config(hidden_size=64), "has the shape"),
        (config(hidden_size=33), "cannot be loaded.*not a multiple"),
        (config(hidden_size=2**20), "its model has"),
        (config(vocab_size=2**70), "cannot be loaded|its model has|damaged"),
        (config(num_labels=10**9, id2label=None), "num_labels is"),
        (config(model_type="zork"), "model_type is 'zork'"),
        (config(model_type=None), "model_type is None"),
        (config(model_type="vit"), "of type 'vit'"),
        (config(model_type="zork", auto_map={"AutoConfig": "evil.Config"}), "run code of its own"),
        (config(architectures=[None]), "architectures is"),
        (cut("config.json"), "broken JSON|cannot be loaded"),
        (text("config.json", "[" * 10_000 + "]" * 10_000), "nested too deeply"),
        (text("config.json", '{"model_type": NaN}'), "NaN is no number"),
        (text("config.json", '{"model_type": "bert", "hidden_size": 1e999}'), "too large"),
        (text("config.json", '{"model_type": "bert", "model_type": "bert"}'), "stands twice"),
        (text("config.json", '{"hidden_size": ' + "1" * 5000 + "}"), "broken JSON"),
        (data("config.json", '{"model_type": "bert"}'.encode("utf-16")), "not UTF-8"),
        (text("config.json", '"bert"'), "no mapping"),
        (without(*TOKENIZER), "knows no words|tokenizer.json is missing"),
        (without("tokenizer.json"), "cannot be loaded|tokenizer.json is missing"),
        (cut("tokenizer.json"), "cannot be loaded"),
        (cut("tokenizer_config.json"), "broken JSON"),
        (cut("model.safetensors"), "cannot be loaded: SafetensorError"),
        (lambda folder: drop("position_ids")(folder) or without("model.safetensors")(folder), "safetensors"),
    ],
)
def test_without_hashes_everything_else_is_still_checked(
    maker: str, change: Change, words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = copy(tmp_path, CRITIC, maker)
    change(folder)
    refused(CRITIC, folder, words)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
def test_a_tokenizer_of_another_model_is_refused(kind: str, tmp_path: Path) -> None:
    folder = copy(tmp_path, kind, FOREIGN)

    def grow(tokenizer: dict[str, Any]) -> None:
        vocabulary = tokenizer["model"]["vocab"]
        vocabulary.update({f"word{number}": 5000 + number for number in range(10)})

    edit_json(folder / "tokenizer.json", grow)
    refused(kind, folder, "has ids up to 5009, and the weights have embeddings")


def test_no_code_of_a_folder_runs_and_a_type_that_is_built_in_needs_none(
    tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    folder = copy(tmp_path, CRITIC, FOREIGN)
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    names = dict.fromkeys(("AutoConfig", "AutoModelForSequenceClassification"), "evil.Thing")
    config(auto_map=names)(folder)
    edit_json(folder / "tokenizer_config.json", lambda c: c.update(auto_map={"AutoTokenizer": ["evil.T", "evil.T"]}))
    assert MODELS[CRITIC].use(folder) == wanted(CRITIC, FOREIGN)
    assert "auto_map" in said.text and not (tmp_path / "ran").exists()


def test_a_run_without_its_sidecar_is_refused(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    make_foreign(tmp_path / "run" / "hf")
    with pytest.raises(UserError, match=rf"faithkit.json is missing(.|\n)*resume={tmp_path / 'run'}"):
        Critic.load(str(tmp_path / "run"))


def test_what_cannot_be_checked_or_is_not_calibrated_is_said_in_a_line(
    tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    MODELS[GENERATOR].use(copy(tmp_path, GENERATOR, OLDER))
    (line,) = [record.getMessage() for record in said.records]
    assert "cannot be checked" in line
    for kind in (CRITIC, TAGGER):
        said.clear()
        shutil.rmtree(tmp_path / "model")
        MODELS[kind].use(copy(tmp_path, kind, FOREIGN))
        (line,) = [record.getMessage() for record in said.records]
        assert "uncalibrated" in line


def test_the_sidecar_alone_is_read_without_hashing_the_weights(tmp_path: Path) -> None:
    folder = copy(tmp_path, CRITIC)
    cut("model.safetensors")(folder)
    assert (sidecar := read_sidecar(folder)) and sidecar.kind == CRITIC


def test_plain_transformers_loads_a_marked_folder() -> None:
    from transformers import AutoConfig, AutoModelForSequenceClassification

    folder = whole_folder(CRITIC, SEALED)
    assert AutoConfig.from_pretrained(folder).to_dict()["faithkit"] == {"kind": CRITIC, "sidecar": SIDECAR}
    _, report = AutoModelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values())


def test_training_takes_a_new_head_but_no_missing_layer(
    tiny_bert: Path, tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    encoder = Path(shutil.copytree(tiny_bert, tmp_path / "encoder"))
    load_classifier(str(encoder))
    (line,) = [record.getMessage() for record in said.records]
    assert "classifier.bias, classifier.weight" in line
    drop("pooler")(encoder)
    load_classifier(str(encoder))
    assert "bert.pooler.dense.weight" in said.text
    drop("encoder.layer.1.")(encoder)
    with pytest.raises(UserError, match=r"the weights lack bert\.encoder\.layer\.1\."):
        load_classifier(str(encoder))
    config(num_hidden_layers=1)(encoder)
    load_classifier(str(encoder))
    rename("encoder.layer.0.", "encoder.layer.5.")(encoder)
    with pytest.raises(UserError, match=r"the weights lack bert\.encoder\.layer\.0\."):
        load_classifier(str(encoder))


def test_another_tasks_head_may_be_left_but_no_layer_of_its_encoder(tiny_bert: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    AutoModelForMaskedLM.from_pretrained(tiny_bert).save_pretrained(tmp_path / "masked")
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(tmp_path / "masked")
    load_classifier(str(tmp_path / "masked"))
    config(num_hidden_layers=1)(tmp_path / "masked")
    with pytest.raises(UserError, match=r"the weights have (bert\.)?encoder\.layer\.1\..*no place"):
        load_classifier(str(tmp_path / "masked"))


def test_an_older_run_is_exported_with_hashes(trained: Path, tmp_path: Path, said: pytest.LogCaptureFixture) -> None:
    from transformers import pipeline

    from critic.export import export

    run_dir = Path(shutil.copytree(trained, tmp_path / "run"))
    make_older(run_dir / "hf")
    assert export(str(run_dir), str(tmp_path / "out")).difference <= 1e-5
    stored = json.loads((tmp_path / "out" / SIDECAR).read_text())
    assert set(stored["hashes"]) == {SIDECAR, "config.json", "model.safetensors", *TOKENIZER}
    before, after = (Critic.load(str(path)).score("a river", "it is long") for path in (run_dir, tmp_path / "out"))
    assert before == after
    assert pipeline("text-classification", str(tmp_path / "out"))("a river")
    flip("model.safetensors")(tmp_path / "out")
    with pytest.raises(UserError, match=r"model\.safetensors was changed or damaged"):
        Critic.load(str(tmp_path / "out"))


def test_a_model_of_ours_on_the_hub_is_read_with_its_sidecar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub's cache is laid out as its client does; nothing is downloaded."""
    from huggingface_hub import constants

    cached = tmp_path / "hub" / "models--someone--critic"
    shutil.copytree(whole_folder(CRITIC, SEALED), cached / "snapshots" / "abc")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("abc")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    critic = Critic.load("someone/critic")
    assert critic.calibration == ScoreCalibration(temperature=1.3, threshold=0.4, aim="f1")


def test_the_command_line_says_it_in_three_lines(trained: Path, tmp_path: Path) -> None:
    run_dir = Path(shutil.copytree(trained, tmp_path / "run"))
    flip("model.safetensors")(run_dir / "hf")
    done = run("evaluate.py", "benchmark=begin", f"checkpoint={run_dir}", f"run_dir={tmp_path / 'scored'}")
    assert done.returncode == 2, done.stderr
    assert "model.safetensors was changed or damaged" in done.stderr
    told = done.stderr[done.stderr.index("error:") :]
    assert len(told.splitlines()) <= 3 and len(done.stderr.splitlines()) <= 6 and "Traceback" not in done.stderr
