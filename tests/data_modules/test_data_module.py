"""Sources in, batches out: cached once, divided by group, mixed by weight, counted."""

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_modules import data_module
from data_modules.build import build_mix, build_source
from data_modules.data_module import DataModule
from data_modules.data_options import DataOptions
from data_modules.encoding.pair_encoder import PairEncoder
from data_modules.encoding.tokens import load_tokenizer
from data_modules.splits import MixPart, SplitPlan
from faithkit.errors import UserError
from tests.data_modules.conftest import write_snli


@pytest.fixture
def snli(tmp_path: Path) -> Path:
    labels = ["entailment", "neutral", "contradiction"] * 40
    return write_snli(
        tmp_path, *((f"river {i // 3} is long", f"it is {label} {i}", label) for i, label in enumerate(labels))
    )


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


def test_a_second_launch_reads_the_cache(
    snli: Path, encoder: PairEncoder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FAITHKIT_HOME", str(tmp_path / "home"))
    counts = module(snli, encoder).counts
    monkeypatch.setattr(data_module, "write_rows", lambda *_: pytest.fail("encoded again"))
    assert module(snli, encoder).counts == counts


def test_another_content_another_layout_or_another_length_is_encoded_anew(
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
