"""LLM-AggreFact and TRUE: the sets of claims, their labels and their splits."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_modules.datasets.claim_sets import AGGREFACT_SETS, TRUE_FILES
from faithkit.errors import UserError
from faithkit.published.figures import published_table
from tests.data_modules.official.benchmark_sets import AGGREFACT, TRUE_SETS
from tests.data_modules.official_rows import labels, make, read, write


def write_parquet(folder: Path) -> Path:
    """The folder of the release: rows of dev and test as Parquet."""
    for split, rows in (("dev", AGGREFACT[:4]), ("test", AGGREFACT)):
        (folder / "data").mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), folder / "data" / f"{split}-00000-of-00001.parquet")
    return folder


def test_the_release_is_read_by_split_and_set(tmp_path: Path) -> None:
    source = make("aggrefact", write_parquet(tmp_path))
    assert source.split_names() == ["validation", "test"]
    examples, counts = read(source)
    assert counts == {"kept": 7} and labels(examples) == {"faithful": 3, "hallucinated": 4}
    assert [one.meta["set"] for one in examples[::3]] == ["AggreFact-CNN", "Wice", "FactCheck-GPT"]
    assert len({one.group for one in examples}) == 2, "claims about one document stay together"
    assert len(read(source, "validation")[0]) == 4


def test_a_set_can_be_chosen_and_the_others_are_counted(tmp_path: Path) -> None:
    examples, counts = read(make("aggrefact", write_parquet(tmp_path), sets="wice"))
    assert len(examples) == 3 and counts["dropped: set AggreFact-CNN"] == 2


def test_a_wrong_column_name_is_told_with_what_the_row_has(tmp_path: Path) -> None:
    renamed = [{("document" if name == "doc" else name): value for name, value in AGGREFACT[0].items()}]
    with pytest.raises(UserError, match="looked for doc, claim, label; found dataset, document, claim, label"):
        read(make("aggrefact", write(tmp_path / "test.jsonl", renamed)))


def test_trues_sets_are_its_files(tmp_path: Path) -> None:
    for name in ("frank_valid_download", "paws_download"):
        write(tmp_path / f"{name}.csv", TRUE_SETS)
    examples, counts = read(make("true_sets", tmp_path))
    assert counts["kept"] == 14 and [one.meta["set"] for one in examples[::7]] == ["frank", "paws"]
    assert labels(examples) == {"faithful": 6, "hallucinated": 8}
    with pytest.raises(UserError, match="the file's name 'mine' is of no set; known: mnbm_download"):
        read(make("true_sets", write(tmp_path / "mine.csv", TRUE_SETS)))


def test_the_published_tables_name_the_sets_as_the_data_do() -> None:
    assert all(set(AGGREFACT_SETS) < set(row) for row in published_table("aggrefact_leaderboard").rows)
    for name in ("true_metrics", "granite_guardian_true"):
        assert set(published_table(name).rows[0]) - {"system"} <= set(TRUE_FILES.values())
