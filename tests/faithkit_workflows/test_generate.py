"""`generate.py` writes what it answers, with the engine that it began with, and keeps what it wrote itself."""

import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from faithkit.errors import UserError
from faithkit.files.jsonl import read_predictions
from faithkit.files.run_folder import read_config
from faithkit.records import Example, Prediction
from faithkit_workflows.answering.strategies import choose_run_engine
from faithkit_workflows.answering.write_answers import write_answers
from faithkit_workflows.generate import MAY_CHANGE
from generation.generator import Advance
from tests.generation.folders import examples
from tests.running import compose, opened

OPTIONS = ("num_rows=24", "save_every_num_rows=5", "decoding.max_new_tokens=6", "num_examples=2")


def generate_here(*overrides: str) -> None:
    """`python generate.py ...` in this process."""
    from faithkit_workflows import generate

    generate.main(compose("generate", *overrides))


def answers(folder: Path, name: str = "embedded-faithdial") -> bytes:
    return (folder / "predictions" / f"{name}.jsonl").read_bytes()


@pytest.fixture(scope="module")
def whole(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    generate_here(f"checkpoint={tiny_llama}", f"run_dir={folder}", *OPTIONS)
    return folder


def test_it_writes_a_predictions_file_in_the_datas_order(whole: Path) -> None:
    rows = [json.loads(line) for line in answers(whole).splitlines()]
    assert 16 < len(rows) <= 24 and all(list(row)[:5] == ["id", "label", "score", "spans", "text"] for row in rows)
    assert all(row["knowledge"] and row["reference"] and "response" not in row for row in rows)
    assert all(row["label"] is None and row["score"] is None for row in rows)
    assert list(read_predictions(whole / "predictions" / "embedded-faithdial.jsonl")) == [row["id"] for row in rows]


def test_batch_size_and_portions_change_nothing_and_the_seed_does(whole, tiny_llama, tmp_path) -> None:
    few = [option for option in OPTIONS if "save_every" not in option]
    for name, *options in (("a", "batch_size=1"), ("b", "batch_size=7", "save_every_num_rows=100"), ("c", "seed=1")):
        generate_here(f"checkpoint={tiny_llama}", f"run_dir={tmp_path / name}", *few, *options)
    assert answers(tmp_path / "a") == answers(tmp_path / "b") == answers(whole) != answers(tmp_path / "c")


@pytest.mark.parametrize("asked", [(), ("engine=auto",), ("engine=transformers",)])
def test_a_resumed_run_keeps_the_engine_that_it_began_with(asked, whole, tmp_path, monkeypatch) -> None:
    pretend_vllm(monkeypatch)
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    with opened("generate", f"resume={folder}", *asked, may_change=MAY_CHANGE) as (run, config):
        choice = choose_run_engine(run, config)
    assert (choice.name, choice.reason) == ("transformers", "as the run began")
    with (
        pytest.raises(UserError, match=r"engine\.name=vllm \(it began with name=transformers\)"),
        opened("generate", f"resume={folder}", "engine=vllm", may_change=MAY_CHANGE),
    ):
        pass


@pytest.mark.parametrize(
    ("model", "options", "engine", "reason"),
    [
        ("tiny_llama", ["decoding=greedy"], "vllm", "on cuda"),
        ("tiny_llama", ["decoding=beam"], "transformers", "searches no beams"),
        ("tiny_t5", [], "transformers", "encoder-decoder"),
        ("unmarked", [], "transformers", "lacks the markers"),
        ("tiny_llama", ["engine=transformers"], "transformers", "is set"),
    ],
)
def test_auto_prefers_vllm_where_it_can_run_the_model(model, options, engine, reason, request) -> None:
    pretend_vllm(request.getfixturevalue("monkeypatch"))
    given = request.getfixturevalue("language_models" if model == "unmarked" else model)
    path = given["llama"] if model == "unmarked" else given
    name, why = settled(f"checkpoint={path}", *options)
    assert name == engine and reason in why


def test_auto_is_ours_where_vllm_is_not_installed_or_finds_no_device(tiny_llama, monkeypatch) -> None:
    pretend_vllm(monkeypatch, unspecified=True)
    name, why = settled(f"checkpoint={tiny_llama}")
    assert name == "transformers" and "finds no device" in why
    monkeypatch.setitem(sys.modules, "vllm.platforms", None)
    assert settled(f"checkpoint={tiny_llama}") == ("transformers", "vLLM is not installed")


def settled(*overrides: str) -> tuple[str, str]:
    """The engine that a command line comes to, and why."""
    with tempfile.TemporaryDirectory() as folder, opened("generate", f"run_dir={folder}", *overrides) as (run, config):
        choice = choose_run_engine(run, config)
        assert config["engine"] == read_config(run.config)["engine"] == {"name": choice.name}
        return choice.name, choice.reason


def pretend_vllm(monkeypatch: pytest.MonkeyPatch, *, unspecified: bool = False) -> None:
    """As if vLLM were installed for a GPU: it has no build that tests could install beside the pins."""
    platforms, vllm = ModuleType("vllm.platforms"), ModuleType("vllm")
    found = SimpleNamespace(is_unspecified=lambda: unspecified, is_cpu=lambda: False)
    platforms.current_platform = found  # type: ignore[attr-defined]
    vllm.ModelRegistry = SimpleNamespace(get_supported_archs=lambda: {"LlamaForCausalLM"})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setitem(sys.modules, "vllm.platforms", platforms)


def test_examples_that_nobody_labelled_are_answered_too(tiny_llama: Path, tmp_path: Path) -> None:
    from data_modules.build import read_generation_inputs

    (read,) = read_generation_inputs(compose("generate", "checkpoint=x", "data=wow", "num_rows=6")["data"]).values()
    assert all(example.label is None for example in read)
    generate_here(f"checkpoint={tiny_llama}", f"run_dir={tmp_path / 'run'}", "data=wow", *OPTIONS, "num_rows=6")
    written = answers(tmp_path / "run", "embedded-wow").splitlines()
    assert [json.loads(line)["id"] for line in written] == [e.id for e in read]


def test_several_datasets_are_several_files(tiny_t5: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = "data.parts=[{dataset: faithdial, path: embedded}, {dataset: embedded, num_test: 30}]"
    given = (f"checkpoint={tiny_t5}", f"run_dir={tmp_path / 'run'}", "data=mix", parts, "decoding=greedy")
    generate_here(*given, *OPTIONS)
    written = (tmp_path / "run" / "predictions").glob("*.jsonl")
    assert {path.name for path in written} == {"embedded-faithdial.jsonl", "embedded.jsonl"}
    assert capsys.readouterr().out.splitlines()[-1] == f"answers: {(tmp_path / 'run' / 'answers.html').as_uri()}"


def test_the_best_of_several_carries_the_critics_verdict(tiny_llama: Path, trained: Path, tmp_path: Path) -> None:
    options = [f"checkpoint={tiny_llama}", f"detector={trained}", "num_rows=8", "decoding.max_new_tokens=6"]
    generate_here(*options, f"run_dir={tmp_path / 'one'}")
    generate_here(*options, f"run_dir={tmp_path / 'best'}", "best_of=4")
    folders = (tmp_path / name / "predictions" for name in ("one", "best"))
    one, best = (read_predictions(folder / "embedded-faithdial.jsonl") for folder in folders)
    assert all(p.label is not None and p.score is not None for p in best.values() if p.text)
    assert all((best[id_].score or 0) <= (one[id_].score or 0) + 1e-6 for id_ in one if one[id_].text)


class Counting:
    """Counts the chunks that it answers."""

    def __init__(self, word: str = "to"):
        self.asked, self.word = 0, word

    def answer(self, asked: Sequence[Example], advance: Advance | None = None) -> list[Prediction]:
        self.asked += 1
        return [Prediction(id=example.id, text=f"{self.word} {example.id}") for example in asked]


@pytest.mark.parametrize(
    "change", ["an answer", "a moved line", "planted", "another model", "a context", "no checksum"]
)
def test_what_this_run_did_not_write_is_answered_again(change, tmp_path, caplog) -> None:
    path, asked, made_by = tmp_path / "a.jsonl", examples(9), "one"
    write_answers(path, asked, Counting(), chunk_size=3, made_by=made_by)
    whole, lines = path.read_bytes(), path.read_bytes().splitlines(keepends=True)
    if change == "an answer":
        path.write_bytes(whole.replace(lines[4], lines[4].replace(b"to ", b"on ")))
    elif change == "a moved line":
        path.write_bytes(b"".join([*lines[:3], lines[4], lines[3], *lines[5:]]))
    elif change == "planted":  # both files of a run with other answers
        write_answers(tmp_path / "b.jsonl", asked, Counting(word="on"), chunk_size=3, made_by="two")
        for suffix in (".jsonl", ".checksums"):
            (tmp_path / "b").with_suffix(suffix).replace(path.with_suffix(suffix))
    elif change == "another model":
        made_by = "two"
    elif change == "a context":
        asked[4] = replace(asked[4], knowledge="another")
    else:
        path.with_suffix(".checksums").unlink()
    again, kept = Counting(), 1 if change in ("an answer", "a context") else 0
    if change == "a moved line":
        with pytest.raises(UserError, match="line 4\n  hint: the data have changed"):
            write_answers(path, asked, again, chunk_size=3, made_by=made_by)
        return
    found = write_answers(path, asked, again, chunk_size=3, made_by=made_by)
    assert again.asked == 3 - kept, "the chunks before the change are kept"
    assert path.read_bytes() == whole and [one.text for one in found] == [f"to {one.id}" for one in asked]
    assert f"lines {3 * kept + 1} to 9" in caplog.text and "answered again" in caplog.text
    done = Counting()
    write_answers(path, asked, done, chunk_size=3, made_by=made_by)
    assert done.asked == 0


def test_answers_to_other_examples_are_not_gone_on_with(tmp_path: Path) -> None:
    write_answers(tmp_path / "a.jsonl", examples(6), Counting(), chunk_size=3)
    with pytest.raises(UserError, match="line 1\n  hint: the data have changed"):
        write_answers(tmp_path / "a.jsonl", examples(12)[1:8], Counting(), chunk_size=3)
    with pytest.raises(UserError, match="6 answers to 2 examples"):
        write_answers(tmp_path / "a.jsonl", examples(2), Counting(), chunk_size=3)


BAD = {
    **{"decoding.top_p=1.5": "top_p is 1.5", "decoding=beam decoding.num_beams=0": "num_beams is 0"},
    **{"best_of=4 decoding=greedy detector=x": "would all be the same", "engine=openai": "engine.name is 'openai'"},
    **{"control_tokens=[entailed]": "no control token 'entailed'", "save_every_num_rows=0": "num_rows is 0"},
    **{"data.split=holdout": "no split 'holdout'", "data=cmu_dog data.path=/nowhere": "/nowhere"},
}


@pytest.mark.parametrize(("overrides", "words"), BAD.items())
def test_bad_settings_are_refused(overrides: str, words: str, tiny_llama: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=words):
        generate_here(f"checkpoint={tiny_llama}", f"run_dir={tmp_path / 'run'}", "num_rows=2", *overrides.split())
