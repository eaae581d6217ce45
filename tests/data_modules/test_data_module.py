"""Sources in, batches out: cached once, divided by group or in folds, mixed by weight, counted."""

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_modules import data_module
from data_modules.build import build_data, build_mix, build_source
from data_modules.data_module import DataModule
from data_modules.data_options import DataOptions
from data_modules.encoding.pair_encoder import PairEncoder
from data_modules.encoding.tokens import load_tokenizer
from data_modules.splits import MixPart, SplitPlan
from faithkit.errors import UserError
from tests.data_modules.conftest import write_snli
from tests.running import plain_config


@pytest.fixture
def snli(tmp_path: Path) -> Path:
    labels = ["entailment", "neutral", "contradiction"] * 40
    rows = [(f"river {i // 3} is long", f"it is {label} {i}", label) for i, label in enumerate(labels)]
    return write_snli(tmp_path, *rows)


def module(path: Path, encoder: PairEncoder, **options: Any) -> DataModule:
    plan = {key: options.pop(key) for key in ("fractions", "seed", "num_rows") if key in options}
    parts = [MixPart(build_source("snli", str(path)))]
    data = DataModule(parts, encoder, DataOptions(**{"batch_size": 8, **options}), SplitPlan(**plan))
    data.setup()
    return data


def test_groups_are_never_cut_and_nothing_is_lost_whatever_the_seed(snli: Path, encoder: PairEncoder) -> None:
    data = module(snli, encoder, fractions={"validation": 0.2, "test": 0.2})
    groups = {name: {e.group for e in subsets[0].examples()} for name, subsets in data.subsets.items()}
    assert all(groups.values()) and not any(a & b for a, b in combinations(groups.values(), 2))
    assert sum(len(subsets[0]) for subsets in data.subsets.values()) == 120
    first, again, other = (module(snli, encoder, seed=seed).subsets["validation"][0].indices for seed in (0, 0, 1))
    assert first.tolist() == again.tolist() != other.tolist()


def test_a_second_launch_reads_the_cache(snli: Path, encoder: PairEncoder, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("FAITHKIT_HOME", str(tmp_path / "home"))
    counts = module(snli, encoder).counts
    monkeypatch.setattr(data_module, "read_examples", lambda *_: pytest.fail("encoded again"))
    assert module(snli, encoder).counts == counts


def test_other_contents_layouts_and_lengths_are_encoded_anew(
    snli: Path, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FAITHKIT_HOME", str(tmp_path / "home"))
    tokenizer, same = load_tokenizer(str(tiny_bert)), (64, "hallucinated", "")
    for max_length, neutral, added in (same, (32, "hallucinated", ""), (64, "drop", "\n"), same):
        source = build_source("snli", str(snli), neutral=neutral)
        data_module.load_encoded(source, "train", PairEncoder(tokenizer=tokenizer, max_length=max_length))
        snli.write_text(snli.read_text() + added)
    assert len(list(tmp_path.glob("home/**/rows.arrow"))) == 4


def test_workers_prepare_the_same_batches(snli: Path, encoder: PairEncoder) -> None:
    serial, parallel = (list(module(snli, encoder, num_workers=workers).train_dataloader()) for workers in (0, 2))
    assert len(serial) == len(parallel)
    for first, second in zip(serial, parallel, strict=True):
        assert all(first[name].equal(second[name]) for name in first)


def test_a_mix_takes_its_parts_by_weight(snli: Path, encoder: PairEncoder) -> None:
    parts = [
        {"dataset": "snli", "path": str(snli), "weight": 2},
        {"dataset": "embedded", "num_train": 40, "num_validation": 10, "num_test": 10, "weight": 0.5},
    ]
    data = DataModule(build_mix(parts), encoder, DataOptions(batch_size=8))
    data.setup()
    index = np.concatenate([batch["index"].numpy() for batch in data.train_dataloader()])
    num_snli = len(data.subsets["train"][0])
    assert (index < num_snli).sum() == 2 * num_snli and (index >= num_snli).sum() == 20


def test_rows_of_a_mixed_batch_keep_their_own_texts_label_and_index(snli: Path, encoder: PairEncoder) -> None:
    parts = [{"dataset": "snli", "path": str(snli)}, {"dataset": "embedded", "num_train": 60}]
    data = DataModule(build_mix(parts), encoder, DataOptions(batch_size=16))
    data.setup()
    first, second = data.subsets["train"]
    for batch in data.train_dataloader():
        rows = zip(batch["input_ids"], batch["label"].tolist(), batch["index"].tolist(), strict=True)
        for ids, label, place in rows:
            subset, row = (first, place) if place < len(first) else (second, place - len(first))
            example = subset.encoded.example(int(subset.indices[row]))
            theirs = encoder.tokenizer(example.knowledge, example.response)["input_ids"]
            assert label == (example.label == "hallucinated")
            assert subset is second or ids[: len(theirs)].tolist() == theirs


@pytest.mark.parametrize(
    ("fraction", "num_groups", "problem", "hint"),
    [
        (0.1, 1, "no validation examples: the 60 rows are of 1 group", "add rows of other groups"),
        (1.0, 1, "no training examples: the 60 rows are of 1 group", "add rows of other groups"),
        (0.0001, 3, "no validation examples: the 60 rows are of 3 groups", "set data.validation_fraction=0.5; or add"),
    ],
)
def test_too_few_groups_are_told_with_their_number_and_the_setting(
    fraction: float, num_groups: int, problem: str, hint: str, encoder: PairEncoder, tmp_path: Path
) -> None:
    write_snli(tmp_path, *((f"Policy {i % num_groups}.", f"It says {i}.", "neutral") for i in range(60)))
    with pytest.raises(UserError, match=f"{problem}, and a group is never divided\n  hint: {hint}"):
        module(tmp_path, encoder, fractions={"validation": fraction, "test": 0.0})


@pytest.mark.parametrize(
    "parts",
    [[{"dataset": "nope"}], [{"dataset": "snli", "weight": 0}], [{"path": "x"}], [{"dataset": "snli", "sead": 1}]],
)
def test_a_wrong_part_is_explained(parts: list[dict[str, Any]]) -> None:
    with pytest.raises(UserError):
        build_mix(parts)


SIZES = {"num_train": 40, "num_validation": 10, "num_test": 10}


def data(encoder: PairEncoder, parts: Any, **options: Any) -> DataModule:
    block = plain_config("train", "data=mix")["data"]
    seed = options.pop("seed", 0)
    built = build_data({**block, "parts": parts, **options}, encoder, num_epochs=2, seed=seed)
    built.setup()
    return built


def test_parts_of_one_dataset_have_names_of_their_own(encoder: PairEncoder) -> None:
    parts = [{"dataset": "embedded", **SIZES}, {"dataset": "embedded", "seed": 1, **SIZES}]
    assert data(encoder, parts).summary()["sizes"]["test"] == {"embedded": 10, "embedded-2": 10}
    named = data(encoder, dict(zip(("one", "two"), parts, strict=True)))
    assert named.summary()["sizes"]["train"] == {"one": 40, "two": 40}
    splits = ("train", "validation", "test")
    assert set(named.counts) == {f"{name}/{split}" for name in ("one", "two") for split in splits}


def test_a_part_may_only_train_or_only_test(encoder: PairEncoder) -> None:
    parts = {
        "both": {"dataset": "embedded", **SIZES},
        "trains": {"dataset": "embedded", "seed": 1, "only": "train", **SIZES},
        "tests": {"dataset": "embedded", "seed": 2, "only": "test", **SIZES},
    }
    sizes = data(encoder, parts).summary()["sizes"]
    assert sizes["train"] == {"both": 40, "trains": 40} and sizes["validation"] == {"both": 10}
    assert sizes["test"] == {"both": 10, "tests": 10}
    with pytest.raises(UserError, match="only is 'tset'"):
        data(encoder, {"tests": {"dataset": "embedded", "only": "tset"}})


MANY = [{"dataset": "embedded", "num_train": 120}]
FOLDED = {"split": "train", "validation_fraction": 0.3}


def test_every_group_is_in_the_test_set_of_one_fold_alone(encoder: PairEncoder) -> None:
    folds = [data(encoder, MANY, fold=fold, num_folds=4, **FOLDED) for fold in range(4)]
    parts = [{name: subset.examples() for name, (subset,) in built.subsets.items()} for built in folds]
    every = [example.id for part in parts for example in part["test"]]
    assert len(every) == len(set(every)) == 120
    for part in parts:
        groups = {name: {example.group for example in examples} for name, examples in part.items()}
        assert not groups["test"] & (groups["train"] | groups["validation"])
        assert not groups["train"] & groups["validation"] and groups["validation"]
        assert sum(map(len, part.values())) == 120
    sizes = [len({example.group for example in part["test"]}) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    for options in ({"fold": 4, "num_folds": 4}, {"fold": -1}, {"fold": 0, "num_folds": 1}):
        with pytest.raises(UserError, match=f"data.fold={options['fold']}"):
            data(encoder, MANY, **options)


def test_rows_can_be_divided_in_place_of_groups(encoder: PairEncoder) -> None:
    def rows_and_groups(split_by: str) -> tuple[list[int], bool]:
        built = data(encoder, MANY, split="train", test_fraction=0.25, split_by=split_by)
        parts = {name: built.subsets[name][0] for name in ("train", "validation", "test")}
        groups = {name: set(part.encoded.groups[part.indices].tolist()) for name, part in parts.items()}
        rows = np.concatenate([part.indices for part in parts.values()])
        assert sorted(rows.tolist()) == list(range(120))
        return [len(part.indices) for part in parts.values()], bool(groups["train"] & groups["test"])

    assert rows_and_groups("rows") == ([78, 12, 30], True)
    assert rows_and_groups("group")[1] is False
