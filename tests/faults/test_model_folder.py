"""A damaged or hostile folder of a model is refused by name before anything is scored, and runs no code."""

import json
import logging
import math
import shutil
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

from critic import Critic
from critic.sequence.settings import WEIGHTS
from critic.sequence.settings import Settings as CriticSettings
from critic.tagger.span_calibration import Settings as TaggerSettings
from critic.tagger.span_calibration import SpanCalibration, tagger_labels
from critic.weights import EVIDENCE, load_classifier
from data_modules.encoding.tokens import load_tokenizer
from faithkit import Generator, Judge, Tagger
from faithkit.calibration import ScoreCalibration
from faithkit.detector import CRITIC, GENERATOR, JUDGE, TAGGER
from faithkit.errors import UserError
from faithkit.files.model_folder import SIDECAR, sidecar_hash, write_folder
from faithkit.inference.text import Decoding
from faithkit.provenance.row_keys import row_keys
from faithkit.provenance.used_model import SEEN_ROWS_FILE, TRAINED, SeenRows
from faithkit.records import Example
from judge.judge import Settings as JudgeSettings
from judge.prompt import read_prompt
from tests.faults.strategies import damaged_bytes, damaged_json, new_folder, share, used_or_explained
from tests.generation.folders import write_generator
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
    rename,
    text,
    without,
)
from tests.running import temporary_folder
from tests.tiny import write_bert, write_language_model

KINDS = (CRITIC, TAGGER, GENERATOR, JUDGE)
OURS, FOREIGN = "ours", "foreign"  # with hashes and settings, or weights and tokenizer alone
KNOWLEDGE, RESPONSE = "the river is long and the city is old", "the king lives in the city"
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
CALIBRATION = ScoreCalibration(temperature=1.3, threshold=0.4, aim="f1")


def write_model(kind: str, folder: Path) -> None:
    """Writes a model of ours with random weights."""
    if kind == GENERATOR:
        write_generator(folder, "causal")
        return
    base, seen = folder.with_name(f"{folder.name}-base"), None
    if kind == JUDGE:
        write_language_model(base, "llama")
        layout = {"ask": "verdict", "template": read_prompt("verdict"), "max_length": 900}
        settings: Any = JudgeSettings(**layout, calibration=CALIBRATION, origin={})
        model: Any = AutoModelForCausalLM.from_pretrained(base)
        model.lm_head.weight.data *= 20
    else:
        write_bert(base, num_layers=1)
        row = Example(id="0", source="rows", split="train", group="0", knowledge=KNOWLEDGE, response=RESPONSE)
        seen = SeenRows.of({TRAINED: [row_keys([row])]})
        origin: dict[str, Any] = {"config": {}, "data": {}}
        settings = CriticSettings(max_length=64, order="knowledge_response", calibration=CALIBRATION, origin=origin)
        model = load_classifier(str(base))
        if kind == TAGGER:
            calibration, labels = SpanCalibration(bias=-0.5, aim="f1"), tagger_labels(True)
            settings = TaggerSettings(labels=labels, max_length=96, calibration=calibration, origin={})
            model = load_classifier(str(base), labels, of_tokens=True)
        model.classifier.weight.data *= 20
    write_folder(folder, model, load_tokenizer(str(base)), settings.to_sidecar(), seen)


write_critic, write_tagger = (partial(write_model, kind) for kind in (CRITIC, TAGGER))


def answer(kind: str, folder: Path) -> Any:
    """Loads a model and asks it one question."""
    if kind == CRITIC:
        return Critic.load(str(folder)).score(KNOWLEDGE, RESPONSE)
    if kind == TAGGER:
        return Tagger.load(str(folder)).predict(KNOWLEDGE, RESPONSE)
    if kind == JUDGE:
        return Judge.load(str(folder), precision="32-true").judge(KNOWLEDGE, RESPONSE)
    decoding = Decoding(max_new_tokens=4)
    return Generator.load(str(folder)).reply(KNOWLEDGE, ["who lives in the city"], decoding=decoding)


@cache
def complete_folder(kind: str, origin: str) -> Path:
    """Writes an undamaged folder; copy it before changing it."""
    folder = temporary_folder("faithkit-model-") / kind
    if origin == FOREIGN:
        return make_foreign(Path(shutil.copytree(complete_folder(kind, OURS), folder)))
    write_model(kind, folder)
    return folder


@cache
def expected_answer(kind: str, origin: str) -> Any:
    return answer(kind, complete_folder(kind, origin))


def copy_folder(tmp_path: Path, kind: str, origin: str = OURS) -> Path:
    return Path(shutil.copytree(complete_folder(kind, origin), tmp_path / "model"))


def assert_refused(kind: str, folder: Path, words: str) -> None:
    with pytest.raises(UserError, match=words) as refused:
        answer(kind, folder)
    assert refused.value.place and refused.value.hint, refused.value
    assert len(str(refused.value).splitlines()) <= 5


def edit_sidecar(folder: Path, change: Callable[[Any], Any]) -> None:
    """Changes the settings of a folder as an attacker does, with the hash that belongs to them."""

    def rehash(stored: Any) -> None:
        change(stored)
        stored["hashes"][SIDECAR] = sidecar_hash(stored)

    edit_json(folder / SIDECAR, rehash)


@pytest.fixture
def messages(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, "faithkit"):
        yield caplog


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
        (lambda folder: edit_json(folder / SIDECAR, lambda stored: stored["origin"].update(a=1)), "json was changed"),
        (lambda folder: edit_json(folder / SIDECAR, lambda stored: stored.pop("hashes") and None), "lacks 'hashes'"),
    ],
)
def test_a_file_that_is_not_as_it_was_written(kind: str, change: Change, words: str, tmp_path: Path) -> None:
    folder = copy_folder(tmp_path, kind)
    change(folder)
    assert_refused(kind, folder, words)


@pytest.mark.parametrize(("kind", "origin"), product(KINDS, (OURS, FOREIGN)))
@share(8)
@given(st.data())
def test_a_damaged_file_is_refused_or_changes_no_answer(kind: str, origin: str, data: st.DataObject) -> None:
    """Without hashes another value may pass, as it is as good as any: the model is used or refused, no more."""
    expected = expected_answer(kind, origin)
    names = (SIDECAR, "config.json", *TOKENIZER, "model.safetensors", SEEN_ROWS_FILE)
    with new_folder() as place, used_or_explained():
        folder = copy_folder(place, kind, origin)
        path = folder / data.draw(st.sampled_from([name for name in names if (folder / name).exists()]))
        damaged = damaged_json if path.suffix == ".json" else damaged_bytes
        path.write_bytes(data.draw(damaged(path.read_bytes())))
        assert answer(kind, folder) == expected or origin == FOREIGN


@pytest.mark.parametrize("kind", KINDS)
def test_missing_tensors_are_never_random(kind: str, tmp_path: Path) -> None:
    folder = copy_folder(tmp_path, kind, FOREIGN)
    weights = (folder / "model.safetensors").read_bytes()
    head, layer = ("classifier", "encoder.layer.0.") if kind in (CRITIC, TAGGER) else ("lm_head", "layers.1.")
    for change in (drop(head), drop(layer), drop(""), rename(head, "unknown_head")):
        (folder / "model.safetensors").write_bytes(weights)
        change(folder)
        assert_refused(kind, folder, "the weights lack")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (empty("model.safetensors"), "model.safetensors is empty|at: .*model.safetensors"),
        (config(num_hidden_layers=2), "the weights lack bert.encoder.layer.1."),
        (config(num_hidden_layers=0), "the weights have bert.encoder.layer.0.*no place"),
        (config(num_hidden_layers=10**9), "num_hidden_layers is 1000000000"),
        (config(hidden_size=33), "cannot be loaded.*not a multiple"),
        (config(vocab_size=2**70), "cannot be loaded|its model has|damaged"),
        (config(num_labels=10**9, id2label=None), "num_labels is"),
        (config(model_type="zork"), "the model_type 'zork'"),
        (config(model_type="vit"), "of type 'vit'"),
        (config(model_type="zork", auto_map={"AutoConfig": "evil.Config"}), "needs code from its folder"),
        (config(architectures=[None]), "architectures is"),
        (cut("config.json"), "broken JSON|cannot be loaded"),
        (text("config.json", "[" * 10_000 + "]" * 10_000), "nested too deeply"),
        (text("config.json", '{"model_type": NaN}'), "NaN is not a JSON number"),
        (text("config.json", '{"model_type": "bert", "hidden_size": 1e999}'), "too large"),
        (text("config.json", '{"model_type": "bert", "model_type": "bert"}'), "twice"),
        (data("config.json", '{"model_type": "bert"}'.encode("utf-16")), "not UTF-8"),
        (without(*TOKENIZER), "has no vocabulary|tokenizer.json is missing"),
        (without("tokenizer.json"), "cannot be loaded|tokenizer.json is missing"),
        (cut("tokenizer_config.json"), "broken JSON"),
        (cut("model.safetensors"), "cannot be loaded: SafetensorError"),
    ],
)
def test_without_hashes_everything_else_is_checked(
    change: Change, words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = copy_folder(tmp_path, CRITIC, FOREIGN)
    change(folder)
    assert_refused(CRITIC, folder, words)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
def test_a_tokenizer_of_another_model_is_refused(kind: str, tmp_path: Path) -> None:
    folder = copy_folder(tmp_path, kind, FOREIGN)
    words = {f"word{number}": 5000 + number for number in range(10)}
    edit_json(folder / "tokenizer.json", lambda tokenizer: tokenizer["model"]["vocab"].update(words))
    assert_refused(kind, folder, "has ids up to 5009, and the weights have embeddings")


def test_no_code_of_a_folder_runs(tmp_path: Path, messages: pytest.LogCaptureFixture) -> None:
    folder = copy_folder(tmp_path, CRITIC, FOREIGN)
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    config(auto_map=dict.fromkeys(("AutoConfig", "AutoModelForSequenceClassification"), "evil.Thing"))(folder)
    edit_json(folder / "tokenizer_config.json", lambda c: c.update(auto_map={"AutoTokenizer": ["evil.T", "evil.T"]}))
    assert answer(CRITIC, folder) == expected_answer(CRITIC, FOREIGN)
    assert "auto_map" in messages.text and not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "name",
    ["../outside.bin", "outside.bin", "/tmp/out.safetensors", "..\\outside.safetensors", "model-1-of-1.safetensors"],
)
def test_an_index_names_safetensors_of_its_folder_alone(name: str, tmp_path: Path) -> None:
    folder = copy_folder(tmp_path, CRITIC, FOREIGN)
    weights = load_file(folder / "model.safetensors")
    for place in (folder, folder.parent):
        torch.save(weights, place / "outside.bin")
    (folder / "model.safetensors").rename(folder / "model-1-of-1.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys(weights, name)}
    text("model.safetensors.index.json", json.dumps(index))(folder)
    if name == "model-1-of-1.safetensors":
        assert answer(CRITIC, folder) == expected_answer(CRITIC, FOREIGN)
    else:
        assert_refused(CRITIC, folder, "weight_map names .*(not a file of this folder|safetensors alone)")


def test_a_foreign_detector_is_reported_as_uncalibrated(tmp_path: Path, messages: pytest.LogCaptureFixture) -> None:
    for kind in (CRITIC, TAGGER):
        folder = complete_folder(kind, FOREIGN)
        messages.clear()
        answer(kind, folder)
        (line,) = [record.getMessage() for record in messages.records]
        assert "uncalibrated" in line


def test_training_takes_a_new_head_alone(tiny_bert: Path, tmp_path: Path, messages: pytest.LogCaptureFixture) -> None:
    encoder = Path(shutil.copytree(tiny_bert, tmp_path / "encoder"))
    load_classifier(str(encoder))
    (line,) = [record.getMessage() for record in messages.records]
    assert "classifier.bias, classifier.weight" in line
    drop("pooler")(encoder)
    load_classifier(str(encoder))
    assert "bert.pooler.dense.weight" in messages.text
    drop("encoder.layer.1.")(encoder)
    masked = tmp_path / "masked"  # another task's head may be left
    AutoModelForMaskedLM.from_pretrained(tiny_bert).save_pretrained(masked)
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(masked)
    load_classifier(str(masked))
    config(num_hidden_layers=1)(masked)
    for folder, problem in ((encoder, r"lack bert\."), (masked, r"have (bert\.)?")):
        with pytest.raises(UserError, match=rf"the weights {problem}encoder\.layer\.1\."):
            load_classifier(str(folder))


@pytest.mark.parametrize(
    ("family", "of_tokens", "problem"),
    [
        ("llama", False, r"a language model \(LlamaForCausalLM\)(.|\n)*model\.weights=minilm"),
        ("llama", True, r"a language model \(LlamaForCausalLM\)(.|\n)*model\.weights=minilm"),
        ("t5", False, "a critic is trained from an encoder"),
    ],
)
def test_a_language_model_is_no_encoder_but_that_of_a_sequence_to_sequence_model_tags_tokens(
    language_models: dict[str, Path], family: str, of_tokens: bool, problem: str
) -> None:
    with pytest.raises(UserError, match=problem):
        load_classifier(str(language_models[family]), of_tokens=of_tokens)
    assert load_classifier(str(language_models["t5"]), of_tokens=True).num_labels == 2


def test_a_model_of_ours_on_the_hub_is_read_with_its_sidecar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub's cache is laid out as its client does; nothing is downloaded."""
    cached = tmp_path / "hub" / "models--someone--critic"
    shutil.copytree(complete_folder(CRITIC, OURS), cached / "snapshots" / "abc")
    (cached / "snapshots" / "abc" / "LICENSE").write_text("a card or a licence may be added")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("abc")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    assert Critic.load("someone/critic").calibration == CALIBRATION


def test_a_run_whose_model_lacks_its_settings_is_to_be_resumed(trained: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(trained, tmp_path / "run"))
    make_foreign(folder / "hf")
    with pytest.raises(UserError, match=rf"faithkit.json is missing(.|\n)*resume={folder}"):
        Critic.load(str(folder))


NUMBERS = (None, True, "0.5", float("nan"), float("inf"), -float("inf"), 1e9, -1, [], {})


@pytest.mark.parametrize(
    ("kind", "path", "value", "words"),
    [
        *((CRITIC, ("thresholds", "threshold"), value, "threshold") for value in NUMBERS),
        (CRITIC, ("thresholds", "temperature"), 0, "temperature"),
        (CRITIC, ("thresholds",), {"temperature": 1.0, "aim": "f1"}, "thresholds.threshold is not set"),
        (CRITIC, ("thresholds", "aim"), 5, "aim is 5"),
        (CRITIC, ("labels",), ["a", "b"], "labels are"),
        (CRITIC, ("kind",), None, "kind is None"),
        (CRITIC, ("layout", "order"), "none", "layout.order is 'none'"),
        *((CRITIC, ("layout", "max_length"), value, "max_length") for value in ("0.5", 5000)),
        (TAGGER, ("layout", "token_support"), "yes", "layout.token_support is 'yes'"),
        (CRITIC, ("thresholds", EVIDENCE), [1.0, 2.0], "evidence_weights is"),
        (CRITIC, ("thresholds", EVIDENCE), ["a"] * len(WEIGHTS), f"thresholds.{EVIDENCE} is"),
        (TAGGER, ("layout",), {}, "layout.max_length is not set"),
        (TAGGER, ("thresholds", "char_threshold"), 2, "char_threshold"),
        (TAGGER, ("thresholds", "response_weights"), [1, 2], "response_weights is"),
        (TAGGER, ("thresholds", "token_weights"), [1, 2, 3], "token_weights is"),
        (TAGGER, ("thresholds", "colour"), 1, "thresholds.colour: there is no such key"),
        (GENERATOR, ("layout", "architecture"), "none", "architecture"),
        (GENERATOR, ("layout", "kind"), "seq2seq", "layout.kind is 'seq2seq'"),
        (GENERATOR, ("layout", "control"), ["voice", 5], "control"),
        (GENERATOR, ("thresholds",), {"overlap": [0.5]}, "thresholds.overlap"),
        (GENERATOR, ("origin",), [], "origin is"),
    ],
)
def test_a_field_of_a_sidecar_is_typed_and_in_its_range(
    kind: str, path: tuple[str, ...], value: Any, words: str, tmp_path: Path
) -> None:
    folder = copy_folder(tmp_path, kind)

    def change(stored: dict[str, Any]) -> None:
        for key in path[:-1]:
            stored = stored[key]
        stored[path[-1]] = value

    if isinstance(value, float) and not math.isfinite(value):  # no hash: such a file is refused before
        edit_json(folder / SIDECAR, change)
        words = "is not a JSON number"
    else:
        edit_sidecar(folder, change)
    assert_refused(kind, folder, words)
    assert_refused(kind, folder, "faithkit.json")
