"""The statements that a test runs are recorded: the choice of tests for a change rests on them."""

from pathlib import Path
from typing import Any

import pytest

from tests.mutation.mutants import mutants_of
from tests.mutation.reach import NOTE, KeptReach, Reach, quickest, with_notes

CODE = '''"""A file."""
from __future__ import annotations
LIMIT = 3
class Box:
    size = 2
def within(value):
    """Tells it."""
    if (
        value < LIMIT
    ):
        return True
    elif value > 5:
        return None
    return False
'''


@pytest.mark.parametrize(
    ("value", "result", "lines"), [(1, True, [8, 11]), (9, None, [8, 12, 13]), (4, False, [8, 12, 14])]
)
def test_each_statement_that_runs_is_noted(value: int, result: bool | None, lines: list[int]) -> None:
    noted: list[tuple[int, bool]] = []
    space: dict[str, Any] = {NOTE: lambda path, line, body: noted.append((line, body))}
    exec(compile(with_notes(CODE, "code.py"), "code.py", "exec"), space)  # noqa: S102
    assert noted == [(line, True) for line in (3, 4, 5, 6)], "what an import runs counts for every test"
    noted.clear()
    assert space["within"](value) is result and space["within"].__doc__ == "Tells it."
    assert noted == [(line, False) for line in lines]


def test_a_test_reaches_a_change_whose_statement_it_runs(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(CODE)
    changes = {str(mutant): mutant.lines for mutant in mutants_of(tmp_path, "code.py")}
    reach = {line: Reach("a test", 0.1, {"code.py": [line]}) for line in (8, 11, 12)}
    inside = changes["code.py:9  value < LIMIT  ->  (value <= LIMIT)"]
    assert [reach[line].runs("code.py", inside) for line in (8, 11, 12)] == [True, False, False]
    assert Reach("processes of its own", 0.1, {"everywhere": [0]}).runs("code.py", inside)


def test_the_quickest_tests_are_chosen_and_a_shared_fixture_counts_once() -> None:
    slow = [Reach(name, 1.0, {}, {"model": 5.0}) for name in ("b", "c", "d")]
    tests = [*slow, Reach("a", 2.0, {}), Reach("long", 30.0, {})]
    assert quickest(tests, 9.5) == (["a", "b", "c"], 9.0)


def test_what_tests_run_is_kept_until_they_change(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("x = 1")
    (tmp_path / "test_code.py").write_text("y = 1")
    kept = KeptReach(tmp_path / "kept", tmp_path)
    assert kept.read("test_code.py") is None
    tests = [Reach("a", 0.5, {"code.py": [1]}, {"model": 5.0})]
    kept.write("test_code.py", tests, ["code.py"])
    assert kept.read("test_code.py") == tests and not tests[0].runs("code.py", [2])
    (tmp_path / "code.py").write_text("z = 2")
    moved = kept.read("test_code.py")
    assert moved is not None and moved[0].runs("code.py", [2]), "its lines are no longer known"
    (tmp_path / "test_code.py").write_text("z = 2")
    assert kept.read("test_code.py") is None
