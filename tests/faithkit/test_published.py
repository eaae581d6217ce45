"""Published figures are those of the papers: pinned, in agreement with each other, and refused where one changed."""

import hashlib
from itertools import groupby, pairwise

import pytest

from faithkit.errors import UserError
from faithkit.published.figures import (
    OVERALL,
    PUBLISHED_LEVELS,
    TASKS,
    TEST_RESPONSES,
    V1,
    all_published_detectors,
    are_comparable,
    part_note,
    published_counts,
    published_detectors,
    ragtruth_models,
)
from faithkit.published.published_tables import CHECKSUMS, FOLDER, published_table, read_table
from faithkit.records import Example

# All files, each digit compared with the paper or, as `read_in` says, with who copies it. Only a correction changes it.
PINNED = "ed84681bd115aad69ef01e9eb3f192384cc8561cc62c7b980581cc775123d4f8"


def test_a_part_of_the_papers_responses_is_said_to_be_one():
    assert part_note(17_838) == ""
    assert "these are 10 responses, the paper's 17,838" in part_note(10)


def test_the_figures_are_those_that_were_compared_with_the_papers():
    files = sorted(FOLDER.glob("*.json"))
    assert [file.stem for file in files] == sorted(CHECKSUMS)
    assert hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest() == PINNED


@pytest.mark.parametrize("name", CHECKSUMS)
def test_no_single_digit_can_be_changed(name, tmp_path):
    text, copy = (FOLDER / f"{name}.json").read_text("utf-8"), tmp_path / f"{name}.json"
    copy.write_text(text, "utf-8")
    assert read_table(copy) == published_table(name)
    digits = [place for place, character in enumerate(text) if character.isdigit()]
    assert len(digits) > 4
    for place in digits:
        other = "1" if text[place] == "9" else str(int(text[place]) + 1)
        copy.write_text(text[:place] + other + text[place + 1 :], "utf-8")
        with pytest.raises(UserError, match="checksum"):
            read_table(copy)


@pytest.mark.parametrize("name", CHECKSUMS)
def test_a_table_names_its_paper_and_who_cites_it(name):
    table = published_table(name)
    authors, year = table.paper.split(",")[0].rsplit(" ", 1)
    assert authors and year.isdigit() and year in table.citation
    assert (table.table is None) == (table.read_in != "the paper")
    if table.table is None:
        assert table.read_in in table.citation


def test_precision_recall_and_f1_agree():
    whole = [row for row in all_published_detectors() if row.precision is not None and row.recall is not None]
    assert len(whole) == 24 + 12 + 6  # by task; of other papers, by response and by character
    for row in whole:
        # Rounded to a tenth each, so a small recall bounds its F1 only loosely.
        lowest, highest = ((row.precision + d, row.recall + d) for d in (-0.051, 0.051))
        bounds = [2 * p * r / (p + r) if p > 0 and r > 0 else 0.0 for p, r in (lowest, highest)]
        assert bounds[0] - 0.051 <= row.f1 <= bounds[1] + 0.051, row


def test_the_counts_of_ragtruths_tables_agree():
    basic = {row["task"]: row for row in published_table("ragtruth_basic").rows}
    whole, parts = basic["all"], [row for task, row in basic.items() if task != "all"]
    for column in ("sources", "responses", "hallucinated", "spans"):
        assert sum(row[column] for row in parts) == whole[column], column
    for row in basic.values():
        assert row["responses"] == 6 * row["sources"]
        assert round(100 * row["hallucinated"] / row["responses"], 1) == row["hallucinated_percent"]
    whole_of = ("Summary", "QA", "Data2txt", "all")
    by_task = {task: [r for r in published_table("ragtruth_models").rows if r["task"] == task] for task in whole_of}
    for column in ("hallucinated", "spans"):
        total = {task: sum(row[column] for row in rows) for task, rows in by_task.items()}
        assert total["Summary"] + total["QA"] + total["Data2txt"] == total["all"]
        assert (total["QA"], total["Data2txt"]) == (basic["QA"][column], basic["Data2txt"][column])
        summaries = [row[column] for task, row in basic.items() if task.startswith("Summary")]
        assert total["Summary"] - sum(summaries) == (9 if column == "spans" else 0), "the paper's own difference"


def test_the_test_set_is_that_of_the_paper():
    (num_sources,) = {row["num_valid"] for row in published_table("ragtruth_suppression").rows[:4]}
    assert num_sources * len(ragtruth_models()) == TEST_RESPONSES == 2700


def test_buckets_follow_each_other_and_give_the_spans_of_the_whole():
    basic = published_table("ragtruth_basic").rows
    rows = published_table("ragtruth_lengths").rows
    for (by, task), found in groupby(rows, key=lambda row: (row["by"], row["task"])):
        own = list(found)
        assert [row["bucket"] for row in own] == [1, 2, 3, 4, 5]
        assert all(first["high"] == second["low"] for first, second in pairwise(own))
        of_task = [row for row in basic if row["task"].startswith(task)]
        assert own[-1]["high"] == max(row[f"{by}_max"] for row in of_task)
        spans_each = sum(row["spans"] for row in of_task) / sum(row["responses"] for row in of_task)
        assert sum(row["spans_each"] for row in own) / 5 == pytest.approx(spans_each, abs=0.006)


def test_reductions_follow_from_rates_but_for_the_papers_misprint():
    rows = published_table("ragtruth_suppression").rows
    random = {row["group"]: row["rate"] for row in rows if row["treatment"] == "random"}
    for row in rows:
        if row["reduction"] is not None:
            found = 100 * (1 - row["rate"] / random[row["group"]])
            misprint = row["reduction"] == 41.0
            assert (abs(found - row["reduction"]) > 1) == misprint, row


def test_a_level_and_task_gives_its_rows_best_first():
    overall = published_detectors("ragtruth", "response")
    assert (overall[0].system, overall[0].f1) == ("RAG-HAT", 83.9)
    assert [row.f1 for row in overall] == sorted((row.f1 for row in overall), reverse=True)
    assert {row.source for row in overall} == {V1, *OVERALL}
    qa = {row.system: (row.precision, row.recall, row.f1) for row in published_detectors("ragtruth", "char", "qa")}
    assert qa["Llama-2-13B, fine-tuned"] == (72.3, 46.6, 56.6)
    assert all(published_detectors("ragtruth", level, task) for level in PUBLISHED_LEVELS for task in TASKS)
    assert not published_detectors("xsum_tokens", "char")


@pytest.mark.parametrize(
    ("names", "are"), [(sorted(ragtruth_models()), True), (["GPT-4-0613"], True), (["other"], False)]
)
def test_figures_stand_beside_the_papers_models_alone(names, are):
    assert are_comparable(by_model(name) for name in names) is are
    assert not are_comparable([Example(id="a", source="s", split="test", group="g", knowledge="k", response="r")])


def by_model(name):
    texts = {"knowledge": "k", "response": "r", "label": "faithful"}
    return Example(id=name, source="s", split="test", group="g", **texts, meta={"model": name})


def test_the_papers_counts_add_up():
    counts, _ = published_counts("diahalu")
    parts = [counts[part] for part in ("knowledge", "task", "chit-chat", "reasoning")]
    assert tuple(map(sum, zip(*parts, strict=True))) == counts["all"] == (748, 329)
    for row in published_table("diahalu_counts").rows:
        assert row["faithful"] + row["hallucinated"] == row["dialogues"]
        assert abs(100 * row["hallucinated"] / row["dialogues"] - row["rate"]) < 0.01
    for row in published_table("halludial_counts").rows:
        assert row["train"] + row["test"] == row["hallucinated"] + row["faithful"]
    assert published_counts("halludial")[0]["all"] == (146_856, 58_420)


def test_every_class_of_faithdials_table_1_is_counted():
    for row in published_table("faithdial_begin").rows:
        assert sum(value for name, value in row.items() if name != "system") == pytest.approx(100, abs=0.15)
