"""A detector's ONNX graph: it scores as the weights do, in any batch, and is the one that was exported."""

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from critic import Critic, Tagger
from critic.export import add_graph as export_graph
from critic.export import export, write_graph
from critic.runtime import GRAPH, ONNX, QUANTISED
from critic.sequence.settings import Settings
from faithkit.calibration import ScoreCalibration
from faithkit.errors import UserError
from faithkit.files.atomic import hash_files
from faithkit.files.model_folder import read_stored, seal, write_folder
from tests.model_folders import Change, cut, without
from tests.tiny import tiny_tokenizer

pytest.importorskip("onnx", reason="needs pip install '.[onnx]'")
pytest.importorskip("onnxruntime", reason="needs pip install '.[onnx]'")
KNOWLEDGE = ["the river is long", "the king wrote a book " * 6, "red music", "a city of stone " * 40]
RESPONSES = ["it is long", "he wrote", "the music was green and not red", "they made a stone city"]


def add_graph(folder: Path, num_classes: int, *, per_token: bool = False, seed: int = 0) -> Path:
    """Puts a graph into a detector's folder and describes it in the sidecar, as an export does.

    A window's logits are the mean over its tokens of rows of a random table; a token's are its own row and that mean.
    Padding would move the mean.
    """
    from onnx import TensorProto, helper, numpy_helper, save

    table = np.random.default_rng(seed).normal(size=(400, num_classes)).astype(np.float32)
    last = ("Add", ["rows", "mean"]) if per_token else ("Identity", ["mean"])
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
        helper.make_node("ReduceMean", ["rows", "axis"], ["mean"], keepdims=int(per_token)),
        helper.make_node(*last, ["logits"]),
    ]
    shape = ["windows", "tokens", num_classes] if per_token else ["windows", num_classes]
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["windows", "tokens"])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, shape)
    constants = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(np.array([1]), "axis")]
    graph = helper.make_graph(nodes, "tiny", [ids], [logits], constants)
    (folder / ONNX).mkdir(exist_ok=True)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), folder / GRAPH)
    compared = {"responses": 1, "labels_changed": 0, "times_as_fast": 1.0} | dict.fromkeys(
        ("largest_logit_difference", "mean_probability_change", "largest_probability_change"), 0.0
    )
    described = {"file": GRAPH, "opset": 18, "int8": False, "sha256": hash_files(folder, [GRAPH])[GRAPH]}
    seal(folder, {**(read_stored(folder) or {}), ONNX: {**described, "compared": compared}})
    return folder


@pytest.fixture
def with_graph(trained: Path, tmp_path: Path) -> Path:
    """A critic's folder with a small graph."""
    return add_graph(shutil.copytree(trained / "hf", tmp_path / "hf"), 2)


@pytest.mark.parametrize("kind", [Critic, Tagger])
def test_a_score_of_the_graph_stands_alone(kind: Any, trained: Path, trained_tagger: Path, tmp_path: Path) -> None:
    folder = shutil.copytree((trained if kind is Critic else trained_tagger) / "hf", tmp_path / "hf")
    num_classes = len((read_stored(folder) or {})["labels"])
    model = kind.load(add_graph(folder, num_classes, per_token=kind is Tagger), precision="onnx")
    together = model.predict(KNOWLEDGE, RESPONSES)
    alone = [model.predict(k, r) for k, r in zip(KNOWLEDGE, RESPONSES, strict=True)]
    assert [(one.label, one.score, one.spans) for one in together] == [(x.label, x.score, x.spans) for x in alone]
    assert len({one.score for one in together}) == len(together) and model.device.type == "cpu"


def elsewhere(folder: Path) -> None:
    stored = read_stored(folder) or {}
    seal(folder, {**stored, ONNX: {**stored[ONNX], "file": "../other/model.onnx"}})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (cut(GRAPH), "is not the graph that was exported with these weights"),
        (without(GRAPH), "model.onnx is missing"),
        (elsewhere, "broken sidecar: onnx is"),
    ],
)
def test_what_is_wrong_with_a_graph_is_said(with_graph: Path, change: Change, message: str) -> None:
    change(with_graph)
    with pytest.raises(UserError, match=message):
        Critic.load(with_graph, precision="onnx")


def test_a_missing_graph_or_package_is_named(with_graph: Path, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"no ONNX graph(.|\n)*faithkit export checkpoint=\S+ format=onnx"):
        Critic.load(trained, precision="onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    for call in (lambda: Critic.load(with_graph, precision="onnx"), lambda: export_graph(str(trained), int8=False)):
        with pytest.raises(UserError, match=r'onnxruntime(.|\n)*pip install "\.\[onnx\]"'):
            call()
    assert not (trained / "hf" / ONNX).exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Critic, Tagger])
def test_a_graph_scores_as_its_weights(kind: Any, trained: Path, trained_tagger: Path, tmp_path: Path) -> None:
    run = trained if kind is Critic else trained_tagger
    report = export(str(run), str(tmp_path / "out"), graph=True)
    wanted, found = kind.load(run, device="cpu"), kind.load(report.folder, precision="onnx")
    pairs = zip(wanted.predict(KNOWLEDGE, RESPONSES), found.predict(KNOWLEDGE, RESPONSES), strict=True)
    assert all(a.label == b.label and a.score == pytest.approx(b.score, abs=1e-5) for a, b in pairs)
    described = (read_stored(report.folder) or {})[ONNX]
    assert (described["file"], described["opset"], described["int8"]) == (GRAPH, 18, False)
    assert described["compared"]["largest_logit_difference"] < 1e-4
    code = re.findall(r"```python\n(.*?)```", (report.folder / "README.md").read_text(), re.DOTALL)
    scope: dict[str, Any] = {"FOLDER": str(report.folder), **dict.fromkeys(("knowledge", "context"), KNOWLEDGE[0])}
    scope |= dict.fromkeys(("response", "answer"), RESPONSES[0])
    by_torch, by_graph = ({**scope} for _ in range(2))
    exec(code[-1], by_graph)  # noqa: S102 - our own card
    if kind is Tagger:
        exec(code[0], by_torch)  # noqa: S102 - our own card
        assert np.abs(by_torch["logits"].detach().numpy() - by_graph["logits"]).max() < 1e-4
    else:
        *lines, call = code[0].strip().splitlines()
        exec("\n".join(lines), by_torch)  # noqa: S102 - our own card
        found = eval(call, by_torch)  # noqa: S307 - our own card
        assert found["score"] == pytest.approx(softmax(by_graph["logits"]).max(), abs=1e-4)


@pytest.mark.slow
def test_a_run_gets_a_graph_in_int8_but_none_too_far_off(trained: Path, tmp_path: Path, monkeypatch: Any) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    folder = export_graph(str(run), int8=True)
    assert folder == run / "hf"
    assert (folder / QUANTISED).exists() and not (folder / GRAPH).exists()
    near = Critic.load(folder, precision="onnx").score(KNOWLEDGE, RESPONSES)
    exact = Critic.load(folder).score(KNOWLEDGE, RESPONSES)
    assert all(a.probability == pytest.approx(b.probability, abs=0.1) for a, b in zip(near, exact, strict=True))
    monkeypatch.setattr("critic.export.MAX_LOGIT_DIFFERENCE", 0.0)
    with pytest.raises(UserError, match="the graph's logits differ by up to"):
        export_graph(str(run), int8=False)
    assert (folder / QUANTISED).exists(), "the folder of before stays"


@pytest.mark.slow
@pytest.mark.parametrize("family", ["Roberta", "ModernBert"])
def test_other_encoders_are_exported_too(family: str, tmp_path: Path) -> None:
    import transformers

    size = {"vocab_size": 500, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_labels": 2}
    size |= {"id2label": {0: "faithful", 1: "hallucinated"}, "initializer_range": 0.5}
    size |= {"intermediate_size": 64, "max_position_embeddings": 130, "pad_token_id": 1}
    own = {"local_attention": 16, "global_attn_every_n_layers": 2} if family == "ModernBert" else {}
    config = getattr(transformers, f"{family}Config")(**size, **own)
    model = getattr(transformers, f"{family}ForSequenceClassification")(config)
    settings = Settings(max_length=96, order="response_knowledge", calibration=ScoreCalibration(), origin={})
    write_folder(tmp_path / "hf", model, tiny_tokenizer("bpe"), settings.to_sidecar())
    described = write_graph(tmp_path / "hf", quantised=False)
    assert described["compared"]["largest_logit_difference"] < 1e-4
    assert described["compared"]["labels_changed"] == 0
