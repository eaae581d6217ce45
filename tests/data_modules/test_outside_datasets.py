"""Datasets of other packages: by an entry point or by `_target_`, in training, benchmarks and generation."""

from pathlib import Path

import pytest

from data_modules.build import build_mix, build_source, find_dataset, read_generation_inputs
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.errors import UserError
from faithkit.files.jsonl import write_jsonl
from faithkit.settings.command_line import CommandLine
from faithkit_workflows import evaluate
from faithkit_workflows.settings.engines import read_detector_file
from tests.running import ROOT, compose, metrics_of, train_here

MODULE = """
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from data_modules.reading.dataset import Source
from data_modules.reading.rows import ReadReport, Row
from faithkit.records import Example


@dataclass(frozen=True, kw_only=True)
class Lamps(Source):
    name: ClassVar[str] = "lamps"
    official_files: ClassVar = ({"train": ["train.jsonl"], "test": ["test.jsonl"]},)
    shade: str = "all"

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        yield Example(
            id=row.default_id, source=self.name, split=split, group=row.default_id,
            knowledge=row.text("fact"), response=row.text("claim"), label=row.text("label"),
        )


@dataclass(frozen=True, kw_only=True)
class Nameless(Source):
    pass


@dataclass(frozen=True, kw_only=True)
class Fileless(Source):
    name: ClassVar[str] = "fileless"


class Other:
    def __init__(self, **options):
        raise AssertionError("only datasets may be called")
"""
SETTINGS = "faithkit_workflows.settings.evaluation:EvaluateSettings"
ENTRY_POINTS = """[faithkit.datasets]
desk_lamps = lamp_data:Lamps
snli = lamp_data:Other
gone = lamp_data:Gone
"""


@pytest.fixture
def lamps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package with a dataset, and the folder of the dataset's files."""
    site, data = tmp_path / "site", tmp_path / "data"
    for folder in (site / "lamp_data", site / "lamp_data-1.0.dist-info", data):
        folder.mkdir(parents=True)
    (site / "lamp_data" / "__init__.py").write_text(MODULE)
    (site / "lamp_data-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: lamp-data\nVersion: 1.0\n")
    (site / "lamp_data-1.0.dist-info" / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(site))
    kinds = enumerate([("blue", "hallucinated"), ("red", "faithful")] * 24)
    rows = [{"fact": f"Lamp {i} is {is_}.", "claim": f"Lamp {i} is red.", "label": label} for i, (is_, label) in kinds]
    write_jsonl(data / "train.jsonl", rows)
    write_jsonl(data / "test.jsonl", rows[:12])
    return data


@pytest.mark.parametrize("named", [{"dataset": "desk_lamps"}, {"_target_": "lamp_data.Lamps"}])
def test_a_part_of_a_mix_may_be_a_dataset_of_another_package(lamps: Path, named: dict[str, str]) -> None:
    parts = [{**named, "path": str(lamps), "weight": 2}, {"dataset": "embedded"}]
    part, _ = build_mix(parts)
    source = part.source
    assert (source.name, part.weight, source.layout()) == ("lamps", 2.0, {"shade": "all"})
    assert len(list(read_examples(source, None, ReadReport()))) == 12
    data = {"parts": parts[:1], "on_bad_row": "stop", "split": "train", "num_rows": 3}
    assert {name: len(rows) for name, rows in read_generation_inputs(data).items()} == {"lamps": 3}


def test_a_test_set_of_another_package_is_excluded_and_ours_may_be_made_of_it(lamps: Path) -> None:
    exclude = [{"_target_": "lamp_data.Lamps", "path": str(lamps), "split": "train"}]
    source = build_mix([{"dataset": "desk_lamps", "path": str(lamps)}], exclude)[0].source
    with pytest.raises(UserError, match=r"no usable example.*excluded test set 12"):
        list(read_examples(source, "test", ReadReport()))
    made = build_source("dropped_support", str(lamps), of={"_target_": "lamp_data.Lamps"})
    assert made.path == str(lamps) and list(made.files()) == ["train"]
    assert find_dataset("snli").__module__ == "data_modules.datasets.nli", "our names are ours"
    with pytest.raises(UserError, match=r"lamps has no layout of the embedded corpus\n.*\n  hint: set its path"):
        build_source("desk_lamps", "embedded")
    assert compose("evaluate", "benchmark=_detection", "benchmark.name=desk_lamps").benchmark.path == "embedded"


def test_it_trains_and_is_a_benchmark(lamps: Path, tiny_bert: Path, tmp_path: Path) -> None:
    small = ["model.max_length=64", "callbacks.num_resamples=20", "callbacks.progress_bar=false", "trainer=cpu"]
    run = tmp_path / "run"
    parts = f"data.parts=[{{dataset: desk_lamps, path: '{lamps}'}}]"
    train_here("data=mix", parts, f"model.weights={tiny_bert}", f"run_dir={run}", "logger=none", *small)
    assert "test/lamps/macro_f1" in metrics_of(run)
    mine = ["benchmark=_detection", "benchmark.name=mine"]
    for number, (name, typed) in enumerate(
        [
            ("mine", [*mine, "+benchmark._target_=lamp_data.Lamps"]),
            ("mine", [*mine, "+benchmark.dataset=desk_lamps"]),
            ("desk_lamps", ["benchmark=desk_lamps"]),
            ("Lamps", ["benchmark=lamp_data:Lamps"]),
        ]
    ):
        folder = tmp_path / f"evaluation-{number}"
        line = [*typed, f"benchmark.path='{lamps}'", f"checkpoint={run}", f"run_dir={folder}", "num_resamples=20"]
        command = CommandLine(ROOT / "configs", "evaluate", line, SETTINGS)
        cfg = command.compose()
        list(command.check(cfg))
        evaluate.main(cfg)
        assert metrics_of(folder)[f"test/{name}/macro_f1"]["n"] == 12


def test_a_detector_file_cannot_name_code(lamps: Path, tmp_path: Path) -> None:
    (tmp_path / "detector.yaml").write_text("checkpoint: lamp_data:Other:0.5\n")
    with pytest.raises(UserError, match="names code that is not this project's: 'lamp_data:Other'"):
        read_detector_file(str(tmp_path / "detector.yaml"))


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"dataset": "lantern"}, "unknown dataset 'lantern'"),
        ({"dataset": "gone"}, "cannot import the dataset 'lamp_data:Gone'"),
        ({"_target_": "lamp_data.Other"}, "'lamp_data.Other' is not a dataset"),
        ({"_target_": "lamp_data.Nameless"}, "the dataset 'lamp_data.Nameless' has no name"),
        ({"_target_": "lamp_data.Fileless"}, "the dataset 'lamp_data.Fileless' has no files"),
        ({"_target_": "no_such_package.Lamps"}, "cannot import the dataset 'no_such_package.Lamps'"),
        ({"_target_": 3}, "cannot import the dataset 3"),
        ({"_target_": "lamp_data.Lamps", "dataset": "desk_lamps"}, "both dataset 'desk_lamps' and _target_"),
        ({"_target_": "lamp_data.Lamps", "colour": "red"}, "its options are path, shade"),
    ],
)
def test_what_is_no_dataset_is_never_called(lamps: Path, named: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build_mix([{**named, "path": str(lamps)}])
