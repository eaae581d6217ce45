"""Parts of a mix: their names, and what each is for."""

from typing import Any

import numpy as np
import pytest

from data_modules.build import build_data
from data_modules.data_module import DataModule
from data_modules.encoding.pair_encoder import PairEncoder
from faithkit.errors import UserError
from tests.running import plain_config

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


@pytest.mark.parametrize("options", [{"fold": 4, "num_folds": 4}, {"fold": -1}, {"fold": 0, "num_folds": 1}])
def test_a_fold_that_is_not_there_is_refused(encoder: PairEncoder, options: dict[str, int]) -> None:
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
