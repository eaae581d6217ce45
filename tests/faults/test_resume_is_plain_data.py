"""Nothing in a run's folder runs code, reads the environment or hangs its reader; a resumed run is plain data."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from faithkit.errors import UserError
from faithkit.files.saved_config import MAX_BYTES, MAX_NODES, read_config, write_config
from faithkit.targets import check_names
from tests.running import commanded, compose, opened

# What a changed configuration named; each executes code of the file that it reads.
CODE = [
    {"_target_": "torch.load", "f": "FILE", "weights_only": False},
    {"_target_": "numpy.load", "file": "FILE", "allow_pickle": True},
    {"_target_": "pandas.read_pickle", "filepath_or_buffer": "FILE"},
    {"_target_": "torch.hub.load", "repo_or_dir": "FOLDER", "source": "local", "model": "evil"},
    {"_target_": "transformers.AutoConfig.from_pretrained", "_args_": ["FOLDER"], "trust_remote_code": True},
    {"_target_": "os.system", "command": "touch MARKER"},
    {"_target_": "tests.faults.outsider.Marks", "path": "MARKER"},
]
PLACES = [
    ("model", "task"),
    ("model", "task", "objective"),
    ("model", "task", "control"),
    ("model", "task", "optimizer", "lr"),
    ("model", "dropout"),
    ("objective",),
    ("control",),
    ("control", "load"),
    ("data", "parts", 0),
    ("data", "parts", 0, "of"),
    ("data", "exclude"),
    ("data", "first"),
    ("callbacks", "patience"),
    ("logger", "csv"),
    ("trainer", "strategy"),
    ("anything",),
]


class Evil:
    """A pickle that leaves a marker where it is loaded."""

    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("begun") / "run"
    with opened("train", "model=t5", "control=ctrl", f"run_dir={folder}"):
        pass
    return folder


@pytest.fixture
def run(begun: Path, tmp_path: Path) -> Path:
    """The folder of a run that has just begun."""
    return shutil.copytree(begun, tmp_path / "run")


@pytest.fixture
def traps(tmp_path: Path) -> Iterator[dict[str, Path]]:
    """Files that execute code where they are loaded carelessly, and the marker that this would leave."""
    folder, marker = tmp_path / "evil", tmp_path / "marker"
    folder.mkdir()
    torch.save(Evil(marker), folder / "evil.pkl")
    (folder / "hubconf.py").write_text(f"open({str(marker)!r}, 'w')\n")
    (folder / "code.py").write_text(f"open({str(marker)!r}, 'w')\n")
    (folder / "config.json").write_text(json.dumps({"model_type": "evil", "auto_map": {"AutoConfig": "code.Evil"}}))
    yield {"FILE": folder / "evil.pkl", "FOLDER": folder, "MARKER": marker}
    assert not marker.exists(), "code was executed"


def put(value: Any, place: tuple[Any, ...], block: Any) -> Any:
    """The value with the block in that place."""
    if not place:
        return block
    if isinstance(value, list) or isinstance(place[0], int):
        items = list(value or [None])
        return [put(items[0], place[1:], block), *items[1:]]
    return {**(value if isinstance(value, dict) else {}), place[0]: put((value or {}).get(place[0]), place[1:], block)}


def train(*overrides: str) -> None:
    from faithkit_workflows.train import main

    with commanded(overrides):
        main(compose("train", *overrides))


def with_paths(code: dict[str, Any], traps: dict[str, Path]) -> Any:
    text = json.dumps(code)
    for name, path in traps.items():
        text = text.replace(name, str(path))
    return json.loads(text)


@pytest.mark.parametrize("code", CODE, ids=lambda code: code["_target_"])
def test_code_that_a_config_names_is_not_executed(code: dict[str, Any], run: Path, traps: dict[str, Path]) -> None:
    whole = read_config(run / "config.yaml")
    told = r"names code that is not this project's.*\n.*\n  hint: .*extensions=\["
    for place in PLACES:
        config = put(whole, place, with_paths(code, traps))
        with pytest.raises(UserError, match=told):
            check_names(config, [], place="config.yaml")
    for place in (("model", "task"), ("data", "parts", 0)):
        write_config(run / "config.yaml", put(whole, place, with_paths(code, traps)))
        with pytest.raises(UserError, match=told):
            train(f"resume={run}")


def test_the_traps_work(traps: dict[str, Path]) -> None:
    torch.load(traps["FILE"], weights_only=False)
    assert traps["MARKER"].exists()
    traps["MARKER"].unlink()


def test_an_outsiders_class_is_built_where_this_command_names_it(run: Path) -> None:
    part = {"_target_": "tests.faults.outsider.Marks"}
    write_config(run / "config.yaml", put(read_config(run / "config.yaml"), ("data", "parts", 0), part))
    with opened("train", f"resume={run}", "extensions=[tests.faults.outsider.Marks]") as (_, config):
        assert config["data"]["parts"][0] == part
    for unrelated in ("extensions=[tests.faults.outsider.Mark]", "extensions=[]", "extensions=[other.Class]"):
        with pytest.raises(UserError, match="not this project's"), opened("train", f"resume={run}", unrelated):
            pass


def test_a_fresh_run_may_name_it_in_the_override_that_holds_it(tmp_path: Path) -> None:
    parts = "data.parts=[{_target_: tests.faults.outsider.Marks}]"
    with opened("train", "data=mix", parts, f"run_dir={tmp_path / 'run'}"):
        pass
    with pytest.raises(UserError, match="not this project's"), opened("train", f"resume={tmp_path / 'run'}"):
        pass


def test_an_installed_dataset_is_asked_for_in_this_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "site" / "lamp_data-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lamp-data\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[faithkit.datasets]\nlamps = tests.faults.outsider:Marks\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    with opened("train", "data=mix", "data.parts=[{dataset: lamps}]", f"run_dir={tmp_path / 'a'}"):
        pass
    block = ("benchmark=_detection", "benchmark.name=lamps")
    with opened("evaluate", *block, f"run_dir={tmp_path / 'b'}"):
        pass
    for script, folder in (("train", tmp_path / "a"), ("evaluate", tmp_path / "b")):
        with pytest.raises(UserError, match=r"'lamps'\n.*\n.*extensions=\[lamps\]"), opened(script, f"resume={folder}"):
            pass
        with opened(script, f"resume={folder}", "extensions=[lamps]"):
            pass


@pytest.mark.parametrize("value", ["${oc.env:SECRET}", "${seed}", "a ${x", "${oc.decode:${oc.env:SECRET}}", "\\\\${x}"])
def test_an_interpolation_in_a_runs_folder_is_refused_with_its_key(
    value: str, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    path = run / "config.yaml"
    config = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**config, "data": {**config["data"], "path": value}}))
    with pytest.raises(UserError, match=r"data.path is an interpolation.*\n  at: .*config.yaml, line \d+\n") as raised:
        train(f"resume={run}")
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("override", ["data.path=${oc.env:SECRET}", "logger.csv.flush='${oc.env:SECRET}'"])
def test_the_environment_is_not_copied_into_a_run(
    override: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    folder = tmp_path / "run"
    with pytest.raises(UserError, match="would be copied into the run's files"):
        train("+" + override if "flush" in override else override, f"run_dir={folder}")
    assert not folder.exists()


def test_a_text_with_a_literal_interpolation_survives_writing_and_resuming(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with opened("train", r"data.path='/data/\${x}/\\\${y}'", f"run_dir={folder}") as (_, config):
        wanted = config["data"]["path"]
    assert "${x}" in wanted
    with opened("train", f"resume={folder}") as (_, again):
        assert again["data"]["path"] == wanted


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
DAMAGED = {
    "an alias": (BOMB.encode(), "an alias", 1),
    "nothing": (b"", "empty: 0 bytes", None),
    "zeros": (bytes(4096), "empty: 4,096 bytes", None),
    "NUL": (b"a: 1\nb: x\x00y\n", "not YAML", None),
    "UTF-16": ("a: 1\n".encode("utf-16"), "not UTF-8", None),
    "Latin-1": (b"a: caf\xe9\n", "not UTF-8: .* at byte 6", None),
    "a list": (b"- a\n- b\n", "should be a map", None),
    "a text": (b"hello\n", "should be a map", None),
    "a tag": (b"a: 1\nb: !!python/object/apply:os.system [true]\n", "a tag", 2),
    "a binary": (b"a: !!binary aGVsbG8=\n", "a tag", 1),
    "a key twice": (b"a: 1\nb:\n  c: 1\n  c: 2\n", "'c' is repeated", 4),
    "a key of its own": (b"a: 1\n[b]: 2\n", "a key that is no text", 2),
    "two documents": (b"a: 1\n---\nb: 2\n", "not YAML", 2),
    "a tab": (b"a:\n\t- b\n", "not YAML", 2),
    "large": (b"a: " + b"x" * MAX_BYTES, "larger than 1,000,000 bytes", None),
    "many": (b"a: [" + b"1," * MAX_NODES + b"]", "more than 10,000 values", 1),
    "deep": (b"a: " + b"[" * 500_000, "nested more than 24 deep", 1),
    "a long number": (b"a: " + b"9" * 5000, "a cannot be read", 1),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_or_hostile_config_is_refused_within_a_second(name: str, run: Path) -> None:
    data, words, line = DAMAGED[name]
    (run / "config.yaml").write_bytes(data)
    start = time.process_time()
    place = "" if line is None else rf"config.yaml, line {line}\n"
    with pytest.raises(UserError, match=rf"(?s){words}.*\n  at: .*{place}.*hint: put the config.yaml back"):
        train(f"resume={run}")
    assert time.process_time() - start < 2, "with the composition of this command's own configuration"


def test_a_transfer_starts_no_command_but_trainings_of_plain_settings() -> None:
    from faithkit_workflows.benchmarks.transfer import check_trainings

    block = {"train": {"mnli": {}, "faithcritic": {}}, "overrides": []}
    config = {"scale": {"name": "local"}, "benchmark": block}
    block["overrides"] = ["model.num_epochs=2", "data.num_rows=50", "model.name='a b'", "trainer=cpu"]
    check_trainings(config)
    words = ["experiment=../../../tmp/evil", "--config-dir=/tmp", "hydra.callbacks={a: {_target_: os.x}}"]
    for word in [*words, "data.parts=[{_target_: a.B}]", "+x=1", "data@hydra=x", "logger.x=${oc.env:SECRET}"]:
        with pytest.raises(UserError, match="not a setting"):
            check_trainings({**config, "benchmark": {**block, "overrides": [word]}})
    with pytest.raises(UserError, match=r"no dataset '../../evil'"):
        check_trainings({**config, "benchmark": {**block, "train": {"../../evil": {}}}})
    with pytest.raises(UserError, match=r"no scale '../../evil'"):
        check_trainings({**config, "scale": {"name": "../../evil"}})


def test_nothing_is_built_from_the_settings_that_a_model_carries(
    trained: Path, traps: dict[str, Path], tmp_path: Path
) -> None:
    """Scoring with a run and exporting it read the training's configuration, as texts for the card alone."""
    from critic.export import export
    from tests.model_folders import make_older
    from tests.running import evaluate_here

    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    make_older(folder / "hf")  # one that no hashes protect
    sidecar = json.loads((folder / "hf" / "faithkit.json").read_text())
    config = sidecar["origin"]["config"]
    for place, code in zip(PLACES, CODE * 3, strict=False):
        config = put(config, place, with_paths(code, traps))
    sidecar["origin"]["config"] = {**config, "model": {**config["model"], "weights": "x"}}
    (folder / "hf" / "faithkit.json").write_text(json.dumps(sidecar))
    small = ["benchmark=embedded", "benchmark.options.num_test=20", f"checkpoint={folder}"]
    evaluate_here(*small, f"run_dir={tmp_path / 'evaluation'}")
    assert export(str(folder), str(tmp_path / "exported")).difference == 0
