"""The detector `thorough`: an answer is read as if it were alone, changed files are refused, and training goes on."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from critic.reader.detector import ADAPTERS, FILE, FOLDER, FORMAT, MAX_ANSWER, Join, Reader, ThoroughDetector
from critic.reader.training import Stage, TrainedReader, make_lessons, train
from critic.support.detector import FILE as DEFAULT_FILE
from critic.support.detector import SupportDetector
from critic.support.word_model import WordModel, write_fitted
from data_modules.datasets.pairs import read_pairs
from data_modules.encoding.encoder import question_text
from faithkit.errors import UserError
from faithkit.files.atomic import hash_file
from faithkit.provenance.row_keys import row_keys
from faithkit.provenance.used_model import TRAINED
from faithkit.records import FAITHFUL, HALLUCINATED
from faithkit.weights.resolve import hash_weights
from tests.running import ROOT

EXAMPLES = list(read_pairs(ROOT / "data_modules/everyday_answers/development.jsonl"))[:40]
CONTEXT = "The warranty lasts 24 months. Adults take 20 mg and children take 10 mg."
TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60)


@pytest.fixture(scope="module")
def base(language_models: dict[str, Path]) -> str:
    return str(language_models["llama"])


@pytest.fixture(scope="module")
def adapters(base: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random adapters and heads of a tiny model."""
    path = tmp_path_factory.mktemp("adapters") / ADAPTERS
    trained = TrainedReader(base, 1, seed=0, device="cpu")
    with torch.no_grad():
        for tensor in trained.tensors().values():
            tensor.normal_()
    trained.write(path)
    return path


@pytest.fixture(scope="module")
def reader(base: str, adapters: Path) -> Reader:
    return Reader.load(adapters, base=base, base_sha256=hash_weights(base) or "", device="cpu")


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([CONTEXT, "A box."]), st.sampled_from(["", "How long?"]), TEXTS), max_size=6))
def test_an_answer_is_read_as_if_it_were_alone(reader: Reader, texts: list[tuple[str, str, str]]) -> None:
    for text, reading in zip(texts, reader.read(texts), strict=True):
        (alone,) = reader.read([text])
        assert reading.verdict == pytest.approx(alone.verdict, abs=2e-3)
        assert reading.tokens == pytest.approx(alone.tokens, abs=2e-3)
        assert all(0 <= begin <= end <= len(text[2]) for begin, end in reading.offsets)


def test_context_and_question_are_read(reader: Reader) -> None:
    readings = reader.read([(CONTEXT, "How long?", "24 months."), (CONTEXT, "", "24 months."), ("", "", "24 months.")])
    assert len({round(one.verdict, 4) for one in readings}) == 3


def test_a_long_answer_has_the_verdict_of_its_worst_part(reader: Reader) -> None:
    words = [f"word{n}" for n in range(2 * MAX_ANSWER)]
    (reading,) = reader.read([(CONTEXT, "", " ".join(words))])
    assert len(reading.tokens) == len(reading.offsets) > MAX_ANSWER
    assert reading.offsets[-1][1] == len(" ".join(words))


@pytest.mark.parametrize("wrong", ["without a head", "without a half", "of another shape", "of another layer"])
def test_adapters_of_another_model_are_refused(base: str, adapters: Path, tmp_path: Path, wrong: str) -> None:
    tensors = load_file(adapters)
    half = tensors["layers.1.mlp.up_proj.a"]
    if wrong.startswith("without"):
        del tensors["verdict.bias" if wrong == "without a head" else "layers.1.mlp.up_proj.b"]
    elif wrong == "of another shape":
        tensors["layers.1.mlp.up_proj.a"] = half[:, 1:].contiguous()
    else:
        tensors["layers.7.mlp.up_proj.a"] = half.clone()
    save_file(tensors, tmp_path / ADAPTERS)
    with pytest.raises(UserError):
        Reader.load(tmp_path / ADAPTERS, base=base, base_sha256=hash_weights(base) or "", device="cpu")


def test_cut_adapters_and_another_base_are_refused(base: str, adapters: Path, tmp_path: Path) -> None:
    (tmp_path / ADAPTERS).write_bytes(adapters.read_bytes()[:-100])
    with pytest.raises(UserError, match="broken adapters"):
        Reader.load(tmp_path / ADAPTERS, base=base, base_sha256=hash_weights(base) or "", device="cpu")
    with pytest.raises(UserError, match="other weights"):
        Reader.load(adapters, base=base, base_sha256="0" * 32, device="cpu")


@pytest.fixture
def fit_folder(base: str, adapters: Path, tmp_path: Path) -> Path:
    """The files of a fit on the tiny models."""
    (tmp_path / ADAPTERS).write_bytes(adapters.read_bytes())
    default = WordModel.read(DEFAULT_FILE)
    names = ("threshold", "unsure_from", "aims", "value_probability", "span_threshold")
    model = {name: getattr(default, name) for name in names}
    model |= {"description": {"fitted_on": [{"name": "development", "rows": 1062}]}}
    hashes = {"adapters_sha256": hash_file(tmp_path / ADAPTERS), "default_sha256": hash_file(DEFAULT_FILE)}
    stored = {"base": base, "base_sha256": hash_weights(base), **hashes, "model": model}
    write_fitted(tmp_path / FILE, FORMAT, {**stored, "response": [1.0, 0.5, 0.0], "word": [1.0, 0.5, 0.0]})
    return tmp_path


def test_label_probability_and_spans_agree(fit_folder: Path, default_file: Path, reader: Reader) -> None:
    default = SupportDetector.load(str(default_file))
    detector = ThoroughDetector(default, reader, Join.read(str(fit_folder)))
    found = list(detector.predict_examples(EXAMPLES))
    assert {one.label for one in found} == {FAITHFUL, HALLUCINATED}
    assert [one.score for one in found] != [one.score for one in default.predict_examples(EXAMPLES)]
    for example, one in zip(EXAMPLES, found, strict=True):
        assert one.score is not None
        assert (one.label == HALLUCINATED) == (one.score >= detector.threshold) == bool(one.spans)
        assert all(example.response[span.start : span.end] == span.text != "" for span in one.spans)


def test_a_changed_file_of_the_fit_is_refused(fit_folder: Path) -> None:
    stored = (fit_folder / FILE).read_text()
    (fit_folder / FILE).write_text(stored.replace('"response": [1.0', '"response": [9.0'))
    with pytest.raises(UserError, match="hash"):
        Join.read(str(fit_folder))
    (fit_folder / FILE).write_text(stored)
    (fit_folder / ADAPTERS).write_bytes(b"0" * 100)
    with pytest.raises(UserError, match="hash"):
        Join.read(str(fit_folder))


def test_the_files_in_the_package_belong_together() -> None:
    join, tensors = Join.read(""), load_file(FOLDER / ADAPTERS)
    assert {"verdict.weight", "token.weight"} <= tensors.keys() and (FOLDER / ADAPTERS).stat().st_size < 12e6
    assert join.default_sha256 == hash_file(DEFAULT_FILE)
    assert join.model["unsure_from"] < join.model["threshold"]
    used = ThoroughDetector.describe("")
    assert used.path == "thorough" and used.find_seen is not None
    assert used.find_seen().contains(TRAINED, "row", row_keys(EXAMPLES).row).all()


def test_training_learns_and_goes_on_where_it_was_interrupted(base: str, tmp_path: Path) -> None:
    def make() -> tuple[TrainedReader, list[Stage]]:
        reader = TrainedReader(base, 1, seed=0, device="cpu")
        lessons = make_lessons(reader.packer, EXAMPLES, [question_text(one) for one in EXAMPLES])
        return reader, [Stage("easy", lessons[:1], 1, 1, 1e-2, False), Stage("all", lessons, 2, 3, 1e-2, True)]

    reader, stages = make()
    losses = [loss for _, _, loss in train(stages, reader, tmp_path / "whole.pt", seed=1)]
    assert losses[-1] < losses[1]
    interrupted, stages = make()
    for _ in zip(range(2), train(stages, interrupted, tmp_path / "part.pt", seed=1), strict=False):
        pass
    again, stages = make()
    rest = [loss for _, _, loss in train(stages, again, tmp_path / "part.pt", seed=1)]
    assert rest == losses[-len(rest) :] and 0 < len(rest) < len(losses)
    for one, other in zip(reader.tensors().values(), again.tensors().values(), strict=True):
        np.testing.assert_array_equal(one.detach().numpy(), other.detach().numpy())
