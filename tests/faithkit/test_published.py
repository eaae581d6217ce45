"""Published figures are those of the papers: pinned, in agreement with each other, and refused where one changed."""

import hashlib

import pytest

from faithkit.errors import UserError
from faithkit.published.figures import (
    CHECKSUMS,
    FOLDER,
    RAGTRUTH_TABLES,
    TASKS,
    V1,
    are_comparable,
    published_detectors,
    published_table,
    ragtruth_models,
    read_table,
)

# All files, each digit compared with the paper or, as `read_in` says, with who copies it. Only a correction changes it.
PINNED = "cbd429ffd29874b9da1070a664926e09ba1d8f4a50e0091a54fbb1c40c3e3aae"


def test_the_figures_are_those_that_were_compared_with_the_papers():
    files = sorted(FOLDER.glob("*.json"))
    assert [file.stem for file in files] == sorted(CHECKSUMS)
    assert hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest() == PINNED


@pytest.mark.parametrize("name", CHECKSUMS)
def test_no_single_digit_can_be_changed(name, tmp_path):
    text, copy = (FOLDER / f"{name}.json").read_text("utf-8"), tmp_path / f"{name}.json"
    copy.write_text(text, "utf-8")
    assert read_table(copy, CHECKSUMS[name]) == published_table(name)
    digits = [place for place, character in enumerate(text) if character.isdigit()]
    assert len(digits) > 4
    for place in digits:
        other = "1" if text[place] == "9" else str(int(text[place]) + 1)
        copy.write_text(text[:place] + other + text[place + 1 :], "utf-8")
        with pytest.raises(UserError, match="checksum"):
            read_table(copy, CHECKSUMS[name])


@pytest.mark.parametrize("name", CHECKSUMS)
def test_a_table_names_its_paper_and_who_cites_it(name):
    table = published_table(name)
    authors, year = table.paper.split(",")[0].rsplit(" ", 1)
    assert authors and year.isdigit() and year in table.citation
    assert (table.table is None) == (table.read_in != "the paper")
    if table.table is None:
        assert table.read_in in table.citation


def test_a_level_and_task_gives_its_rows_best_first():
    overall = published_detectors("ragtruth", "response")
    assert (overall[0].system, overall[0].f1) == ("RAG-HAT", 83.9)
    assert [row.f1 for row in overall] == sorted((row.f1 for row in overall), reverse=True)
    assert {row.source for row in overall} == {V1} | {source for source, level, _ in RAGTRUTH_TABLES if not level}
    qa = {row.system: (row.precision, row.recall, row.f1) for row in published_detectors("ragtruth", "char", "qa")}
    assert qa["Llama-2-13B, fine-tuned"] == (72.3, 46.6, 56.6)
    assert all(published_detectors("ragtruth", level, task) for level in ("response", "char") for task in TASKS)
    assert not published_detectors("xsum_tokens", "char")


@pytest.mark.parametrize(
    ("names", "are"), [(sorted(ragtruth_models()), True), (["GPT-4-0613"], True), (["other"], False), ([None], False)]
)
def test_figures_stand_beside_the_papers_models_alone(names, are):
    assert are_comparable(names) is are
