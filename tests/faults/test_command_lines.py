"""Every wrong command line is refused with its reason before anything is made; the right ones pass."""

import pytest

from tests.faults.command_lines import BASE, RIGHT, Line, wrong_lines
from tests.faults.command_places import Places, refusal

WRONG = list(wrong_lines())


def test_the_table_is_as_long_as_the_campaign_that_it_repeats() -> None:
    assert len({str(line) for line in WRONG}) == len(WRONG) >= 289
    assert {line.script for line in WRONG} == set(BASE)


@pytest.mark.parametrize("line", WRONG, ids=str)
def test_a_wrong_command_line_says_what_is_wrong(line: Line, places: Places) -> None:
    before = places.contents()
    said = refusal(line.script, places.fill(line.arguments))
    assert said is not None, "accepted"
    assert len(said.splitlines()) <= 5, said
    for word in line.words:
        assert word in said, said
    assert places.contents() == before, "nothing is made"


@pytest.mark.parametrize(("script", "arguments"), RIGHT)
def test_a_right_command_line_passes(script: str, arguments: tuple[str, ...], places: Places) -> None:
    base = () if "--cfg" in arguments or "-m" in arguments else BASE[script]
    assert refusal(script, places.fill((*base, *arguments))) is None
