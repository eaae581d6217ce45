"""Statistics of labels, beside the papers' own."""

from pathlib import Path

from data_modules.embedded.layouts import WRITERS
from faithkit.evaluation.label_stats import divide, label_stats, label_stats_tables
from faithkit.evaluation.published.judges import published_counts
from faithkit.evaluation.published.tables import published_table
from faithkit.evaluation.tables import as_text
from faithkit.records import Example
from tests.data_modules.examples import example
from tests.data_modules.official_rows import make, read


def embedded(name: str, folder: Path, **options: object) -> list[Example]:
    source = make(name, WRITERS[name](folder, {"train": 160, "test": 80}), **options)
    return read(source)[0]


def test_diahalus_domains_stand_beside_table_2(tmp_path: Path) -> None:
    examples = embedded("diahalu", tmp_path)
    stats = label_stats(examples)
    assert list(stats.parts) == ["chit-chat", "knowledge", "reasoning", "task", "all"]
    assert sum(stats.parts[part].examples for part in list(stats.parts)[:-1]) == stats.parts["all"].examples == 240
    for part, counts in stats.parts.items():
        rows = [e for e in examples if part in ("all", e.meta["domain"])]
        assert counts.hallucinated == sum(e.label == "hallucinated" for e in rows)
        assert counts.groups == len(rows)  # each dialogue by itself
    assert set(stats.types["reasoning"]) == {"reasoning error"}
    assert sum(stats.types["task"].values()) == stats.parts["task"].hallucinated
    assert stats.mean_rounds is not None and stats.mean_rounds >= 6
    shown = as_text(*label_stats_tables(stats, title="diahalu", dataset="diahalu"))
    assert "748" in shown and "329 (44.0%)" in shown and "Chen et al. 2024" in shown and "reasoning" in shown
    assert "748" not in as_text(*label_stats_tables(stats))


def test_rounds_without_a_label_are_counted_apart(tmp_path: Path) -> None:
    examples = embedded("diahalu", tmp_path, level="turn")
    stats = label_stats(examples)
    assert stats.num_unlabelled == sum(e.label is None for e in examples) > 0
    assert stats.parts["all"].examples == len(examples) - stats.num_unlabelled
    assert stats.parts["all"].groups < stats.parts["all"].examples


def test_halludials_scenarios_stand_beside_its_counts(tmp_path: Path) -> None:
    stats = label_stats(embedded("halludial", tmp_path, official_split=False))
    assert list(stats.parts) == ["induced", "spontaneous", "all"]
    assert stats.parts["induced"].rate > stats.parts["spontaneous"].rate
    shown = as_text(*label_stats_tables(stats, dataset="halludial"))
    assert "146,856" in shown and "91,785" in shown and "21,706 (23.6%)" in shown


def test_halueval_counts_by_task_without_a_paper(tmp_path: Path) -> None:
    stats = label_stats(embedded("halueval", tmp_path))
    assert stats.parts["qa"].rate == stats.parts["summarization"].rate == 0.5 and not stats.types
    assert published_counts("halueval") == ({}, "")


def test_a_second_field_of_one_value_divides_nothing() -> None:
    def parts(*kinds: str) -> list[tuple[str, str, int]]:
        rows = [example(source="s", meta={"task": "qa", "kind": kind}) for kind in kinds]
        return [(field, value, len(found)) for field, value, found in divide(rows, {"s": ("task", "kind")})]

    assert parts("x", "x") == [("task", "qa", 2)]
    assert parts("x", "y", "y") == [("task", "qa", 3), ("kind", "x", 1), ("kind", "y", 2)]


def test_the_papers_counts_add_up() -> None:
    counts, _ = published_counts("diahalu")
    parts = [counts[part] for part in ("knowledge", "task", "chit-chat", "reasoning")]
    assert tuple(map(sum, zip(*parts, strict=True))) == counts["all"] == (748, 329)
    for row in published_table("diahalu_counts").rows:
        assert row["faithful"] + row["hallucinated"] == row["dialogues"]
        assert abs(100 * row["hallucinated"] / row["dialogues"] - row["rate"]) < 0.01
    for row in published_table("halludial_counts").rows:
        assert row["train"] + row["test"] == row["hallucinated"] + row["faithful"]
    assert published_counts("halludial")[0]["all"] == (146_856, 58_420)
