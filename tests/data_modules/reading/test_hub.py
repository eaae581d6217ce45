"""Datasets from the hub, with a fake hub in its place."""

import json
from pathlib import Path
from typing import Any

import datasets
import pytest

from data_modules.reading.files import HubSplit
from faithkit.errors import UserError
from tests.data_modules.official import LAKE
from tests.data_modules.official.dialogues import FAITHDIAL
from tests.data_modules.official.judgements import HALLUDIAL
from tests.data_modules.official_rows import labels, make, read


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple]:
    """Answers `load_dataset`; gives back the calls."""
    calls = []
    pairs = [{"premise": LAKE, "hypothesis": f"h{n}", "label": label} for n, label in enumerate([0, 1, 2, -1])]
    (tmp_path / "faithdial.json").write_text(json.dumps(FAITHDIAL))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    real = datasets.load_dataset

    def load_dataset(name: str, *config: str, **options: Any) -> Any:
        calls.append((name, *config, options))
        if config:
            return datasets.Dataset.from_list(HALLUDIAL)
        if name == "json":
            files = {split: str(tmp_path / "faithdial.json") for split in options["data_files"]}
            return real("json", data_files=files, split=options["split"], cache_dir=str(tmp_path / "cache"))
        rows = pairs
        if "multi_nli" in name:
            rows = [{**row, "pairID": f"{n}x", "promptID": "5", "genre": "fiction"} for n, row in enumerate(pairs)]
        return datasets.Dataset.from_list(rows)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return calls


def test_snli(hub: list) -> None:
    examples, counts = read(make("snli", "hub"), "validation")
    assert [example.id for example in examples] == [f"snli:validation:{number}" for number in range(3)]
    assert [example.tags for example in examples] == [("entailment",), ("neutral",), ("contradiction",)]
    assert counts == {"dropped: no gold label": 1, "kept": 3}
    assert hub == [("stanfordnlp/snli", {"split": "validation", "revision": None})]


@pytest.mark.parametrize(("name", "num_examples"), [("faithdial", 8), ("faithcritic", 5)])
def test_faithdial_is_read_as_its_json_files(hub: list, name: str, num_examples: int) -> None:
    examples, counts = read(make(name, "hub"), "test")
    assert len(examples) == num_examples
    assert counts["case: edited, hallucinated"] == 2
    (url,) = hub[0][1]["data_files"].values()
    assert url.startswith("hf://datasets/McGill-NLP/FaithDial@7a414e80") and url.endswith("/data/test.json")
    assert labels(examples)["hallucinated"] == (1 if name == "faithdial" else 3)


def test_halludials_scenarios_are_parts_of_its_dataset(hub: list) -> None:
    examples, counts = read(make("halludial", "hub"), "test")
    assert {example.meta["scenario"] for example in examples} == {"spontaneous", "induced"}
    assert counts["kept"] == 2 * len(HALLUDIAL) and len({example.id for example in examples}) == len(examples)
    options = {"split": "test", "revision": None}
    assert hub == [("FlagEval/HalluDial", name, options) for name in ("spontaneous", "induced")]
    alone = read(make("halludial", "hub", scenario="induced"), "train")[0]
    assert {example.meta["scenario"] for example in alone} == {"induced"} and len(alone) == len(HALLUDIAL)


def test_no_code_of_a_dataset_is_asked_for_and_failures_are_told(hub: list, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("snli", "mnli", "faithdial"):
        read(make(name, "hub"), "train")
    assert not any("trust_remote_code" in options for _, options in hub)
    with pytest.raises(UserError, match="is not read from the hub"):
        make("decode", "hub").files()
    one, other = (HubSplit(dataset="a/b", split=split, address="x") for split in ("train", "test"))
    assert one.name == "hub:a/b:train", "the key of the encodings tells contents apart"
    assert one.open("rb").read() == one.open("rb").read() != other.open("rb").read()

    def refuse(name: str, **options: Any) -> Any:
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(UserError, match="cannot load from the hub: ConnectionError") as caught:
        read(make("snli", "hub"), "train")
    assert str(caught.value.place) == "hub:stanfordnlp/snli:train"
    assert "set data.path=FOLDER with the official files (https://nlp.stanford.edu" in str(caught.value.hint)
