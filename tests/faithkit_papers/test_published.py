"""Figures of the papers' tables: pinned, and each names its paper, as in tests/faithkit/test_published.py."""

import hashlib

import pytest

from faithkit.errors import UserError
from faithkit.published.figures import read_table
from faithkit_papers.published_figures import CHECKSUMS, FOLDER, paper_table

# All files, each digit compared with the paper. Only a correction changes it.
PINNED = "7947ec09f2bfd00bb29f07671d91af7a28a495c3464d4031d9650615ded7389f"


def test_the_figures_are_those_that_were_compared_with_the_papers():
    assert len(paper_table("ragtruth_models").rows) > 6, "a table of the core is found too"
    files = sorted(FOLDER.glob("*.json"))
    assert [file.stem for file in files] == sorted(CHECKSUMS)
    assert hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest() == PINNED


@pytest.mark.parametrize("name", CHECKSUMS)
def test_a_changed_digit_is_refused_and_a_table_names_its_paper(name, tmp_path):
    table = paper_table(name)
    authors, year = table.paper.split(",")[0].rsplit(" ", 1)
    assert authors and year.isdigit() and year in table.citation
    assert table.table is not None and table.read_in == "the paper"
    text, copy = (FOLDER / f"{name}.json").read_text("utf-8"), tmp_path / f"{name}.json"
    digits = [place for place, character in enumerate(text) if character.isdigit()]
    assert len(digits) > 4
    for place in digits:
        other = "1" if text[place] == "9" else str(int(text[place]) + 1)
        copy.write_text(text[:place] + other + text[place + 1 :], "utf-8")
        with pytest.raises(UserError, match="checksum"):
            read_table(copy, CHECKSUMS[name])
