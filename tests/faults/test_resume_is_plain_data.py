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
from faithkit.files.run_folder import MAX_BYTES, MAX_NODES, read_config, write_config
from faithkit.targets import check_names, find_outside_code, named_in
from tests.running import commanded, compose, opened


class Marks:
    """A class of another package, which leaves a marker where it is built."""

    def __init__(self, path: str):
        Path(path).touch()


class Evil:
    """A pickle that leaves a marker where it is loaded."""

    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


MARKS = f"{__name__}.Marks"
# Each executes code of the file that it reads.
CODE = [
    {"_target_": "torch.load", "f": "FILE", "weights_only": False},
    {"_target_": "torch.hub.load", "repo_or_dir": "FOLDER", "source": "local", "model": "evil"},
    {"_target_": "transformers.AutoConfig.from_pretrained", "_args_": ["FOLDER"], "trust_remote_code": True},
    {"_target_": "os.system", "command": "touch MARKER"},
    {"_target_": MARKS, "path": "MARKER"},
]
PLACES = [
    *(("model", "task"), ("model", "task", "optimizer", "lr"), ("objective",), ("control", "load")),
    *(("data", "parts", 0), ("data", "parts", 0, "of"), ("data", "exclude"), ("logger", "csv"), ("anything",)),
]


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("begun") / "run"
    with opened("train", "model=t5", "control=ctrl", f"run_dir={folder}"):
        pass
    return folder


@pytest.fixture
def run(begun: Path, tmp_path: Path) -> Path:
    """Copies the folder of a run that has just begun."""
    return shutil.copytree(begun, tmp_path / "run")


@pytest.fixture
def traps(tmp_path: Path) -> Iterator[dict[str, Path]]:
    """Writes files that execute code where they are loaded carelessly, and checks that the marker is missing."""
    folder, marker = tmp_path / "evil", tmp_path / "marker"
    folder.mkdir()
    torch.save(Evil(marker), folder / "evil.pkl")
    for name in ("hubconf.py", "code.py"):
        (folder / name).write_text(f"open({str(marker)!r}, 'w')\n")
    (folder / "config.json").write_text(json.dumps({"model_type": "evil", "auto_map": {"AutoConfig": "code.Evil"}}))
    torch.load(folder / "evil.pkl", weights_only=False)
    assert marker.exists(), "the trap works"
    marker.unlink()
    yield {"FILE": folder / "evil.pkl", "FOLDER": folder, "MARKER": marker}
    assert not marker.exists(), "code was executed"


def put(value: Any, place: tuple[Any, ...], block: Any) -> Any:
    """Gives the value with the block in that place."""
    if not place:
        return block
    if isinstance(value, list) or isinstance(place[0], int):
        items = list(value or [None])
        return [put(items[0], place[1:], block), *items[1:]]
    return {**(value if isinstance(value, dict) else {}), place[0]: put((value or {}).get(place[0]), place[1:], block)}


def with_paths(code: dict[str, Any], traps: dict[str, Path]) -> Any:
    text = json.dumps(code)
    for name, path in traps.items():
        text = text.replace(name, str(path))
    return json.loads(text)


def train(*overrides: str) -> None:
    from faithkit_workflows.train import main

    with commanded(overrides):
        main(compose("train", *overrides))


@pytest.mark.parametrize("code", CODE, ids=lambda code: code["_target_"])
def test_code_that_a_config_names_is_not_executed(code: dict[str, Any], run: Path, traps: dict[str, Path]) -> None:
    complete, block = read_config(run / "config.yaml"), with_paths(code, traps)
    words = r"names code that is not this project's.*\n.*\n  hint: .*extensions=\["
    for place in PLACES:
        with pytest.raises(UserError, match=words):
            check_names(put(complete, place, block), [], place="config.yaml")
    write_config(run / "config.yaml", put(complete, ("data", "parts", 0), block))
    with pytest.raises(UserError, match=words):
        train(f"resume={run}")


def test_another_packages_class_is_built_where_the_command_names_it(run: Path, tmp_path: Path) -> None:
    write_config(run / "config.yaml", put(read_config(run / "config.yaml"), ("data", "parts", 0), {"_target_": MARKS}))
    with opened("train", f"resume={run}", f"extensions=[{MARKS}]") as (_, config):
        assert config["data"]["parts"][0] == {"_target_": MARKS}
    for unrelated in (f"extensions=[{MARKS[:-1]}]", "extensions=[]", "extensions=[other.Class]"):
        with pytest.raises(UserError, match="not this project's"), opened("train", f"resume={run}", unrelated):
            pass
    new = tmp_path / "new"
    with opened("train", "data=mix", f"data.parts=[{{_target_: {MARKS}}}]", f"run_dir={new}"):
        pass
    with pytest.raises(UserError, match="not this project's"), opened("train", f"resume={new}"):
        pass


def test_an_installed_dataset_is_asked_for_in_this_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "site" / "lamp_data-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lamp-data\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[faithkit.datasets]\nlamps = {__name__}:Marks\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    folder = tmp_path / "run"
    with opened("train", "data=mix", "data.parts=[{dataset: lamps}]", f"run_dir={folder}"):
        pass
    with pytest.raises(UserError, match=r"'lamps'\n.*\n.*extensions=\[lamps\]"), opened("train", f"resume={folder}"):
        pass
    with opened("train", f"resume={folder}", "extensions=[lamps]"):
        pass


@pytest.mark.parametrize("value", ["${oc.env:SECRET}", "${seed}", "a ${x", "${oc.decode:${oc.env:SECRET}}", "\\\\${x}"])
def test_an_interpolation_in_a_runs_folder_is_refused(value: str, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    path = run / "config.yaml"
    config = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**config, "data": {**config["data"], "path": value}}))
    with pytest.raises(UserError, match=r"data.path is an interpolation.*\n  at: .*config.yaml, line \d+\n") as raised:
        train(f"resume={run}")
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("override", ["data.path=${oc.env:SECRET}", "+logger.csv.flush='${oc.env:SECRET}'"])
def test_no_environment_is_copied_into_a_run(override: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    with pytest.raises(UserError, match="would be copied into the run's files"):
        train(override, f"run_dir={tmp_path / 'run'}")
    assert not (tmp_path / "run").exists()


def test_a_text_with_a_literal_interpolation_survives_writing_and_resuming(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with opened("train", r"data.path='/data/\${x}/\\\${y}'", f"run_dir={folder}") as (_, config):
        path = config["data"]["path"]
    assert "${x}" in path
    with opened("train", f"resume={folder}") as (_, again):
        assert again["data"]["path"] == path


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
DAMAGED = {
    "an alias": (BOMB.encode(), "an alias", 1),
    "nothing": (b"", "empty: 0 bytes", None),
    "UTF-16": ("a: 1\n".encode("utf-16"), "not UTF-8", None),
    "a list": (b"- a\n- b\n", "should be a map", None),
    "a tag": (b"a: 1\nb: !!python/object/apply:os.system [true]\n", "a tag", 2),
    "a key twice": (b"a: 1\nb:\n  c: 1\n  c: 2\n", "'c'", 4),
    "large": (b"a: " + b"x" * MAX_BYTES, "larger than 1,000,000 bytes", None),
    "many": (b"a: [" + b"1," * MAX_NODES + b"]", "more than 10,000 values", 1),
    "deep": (b"a: " + b"[" * 500_000, "nested more than 24 deep", 1),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_or_hostile_config_is_refused_at_once(name: str, run: Path) -> None:
    content, words, line = DAMAGED[name]
    (run / "config.yaml").write_bytes(content)
    start = time.process_time()
    place = "" if line is None else rf"config.yaml, line {line}\n"
    with pytest.raises(UserError, match=rf"(?s){words}.*\n  at: .*{place}.*hint: put the config.yaml back"):
        train(f"resume={run}")
    assert time.process_time() - start < 2, "with the composition of this command's configuration"


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


def test_nothing_is_built_from_the_settings_of_a_model(trained: Path, traps: dict[str, Path], tmp_path: Path) -> None:
    """Scoring with a run and exporting it read the training's configuration, as texts for the card alone."""
    from critic.export import export
    from tests.faults.test_model_folder import edit_sidecar
    from tests.running import evaluate_here

    folder = Path(shutil.copytree(trained, tmp_path / "run"))

    def change(stored: dict[str, Any]) -> None:
        config = stored["origin"]["config"]
        for place, code in zip(PLACES, CODE * 3, strict=False):
            config = put(config, place, with_paths(code, traps))
        stored["origin"]["config"] = {**config, "model": {**config["model"], "weights": "x"}}

    edit_sidecar(folder / "hf", change)
    small = ["benchmark=embedded", "benchmark.options.num_test=20", f"checkpoint={folder}"]
    evaluate_here(*small, f"run_dir={tmp_path / 'evaluation'}")
    assert export(str(folder), str(tmp_path / "exported")).difference == 0


@pytest.mark.parametrize(
    ("override", "is_named"),
    [
        ("data.parts=[{_target_: my.Data, path: DIR}]", True),
        ("+data.parts.x._target_=my.Other,my.Data", True),
        ("extensions=['my.Data']", True),
        ("run_dir=my.Data.2", False),
        ("data.path='in my.Data'", False),
        ("data.parts=[my.Data", False),
    ],
)
def test_a_whole_text_of_a_value_names_code(override: str, is_named: bool) -> None:
    assert named_in([override], {"data": {"_target_": "my.Data"}}) == ["my.Data"] * is_named
    assert (find_outside_code([override]) is not None) == (is_named or override.endswith("[my.Data"))
