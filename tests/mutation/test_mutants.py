"""`make mutate`: the changes it makes, and that it tells one that is noticed from one that is not."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation.__main__ import harmless
from tests.mutation.mutants import mutants_of, sample
from tests.mutation.selection import ROOT, central_files, choose_tests

CODE = '''"""A file."""
from typing import Annotated
SMALL = 3
Kind = Annotated[int, 5]
def within(value: int, ends: "tuple[int, 2]" = (0, 9)) -> bool:
    assert value != 7
    path = ROOT / "a"
    if not ends:
        raise ValueError(f"{value + 1}")
    return ends[0] <= value < ends[1] and value is not None
CACHE_VERSION, LIMIT = 2, 400
FILE_VERSION = 4
BLOCK = 1 << 20
'''
CHANGES = {
    (3, "3", "(4)"),
    (11, "2", "(3)"),
    (11, "400", "(800)"),
    (5, "0", "(1)"),
    (5, "9", "(10)"),
    (8, "not ends", "(ends)"),
    (10, "0", "(1)"),
    (10, "1", "(2)"),
    (10, "ends[0] <= value < ends[1]", "(ends[0] < value < ends[1])"),
    (10, "ends[0] <= value < ends[1]", "(ends[0] <= value <= ends[1])"),
    (10, "value is not None", "(value is None)"),
    (
        10,
        "ends[0] <= value < ends[1] and value is not None",
        "(ends[0] <= value < ends[1] or value is not None)",
    ),
}


def test_comparisons_constants_and_operators_are_changed_one_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(CODE)
    found = list(mutants_of(tmp_path, "code.py"))
    assert {(mutant.line, mutant.before, mutant.after) for mutant in found} == CHANGES and len(found) == len(CHANGES)
    for mutant in found:
        changed = [(a, b) for a, b in zip(CODE.splitlines(), mutant.source.splitlines(), strict=True) if a != b]
        assert len(changed) == 1
        compile(mutant.source, "code.py", "exec")


@pytest.mark.parametrize("line", ["größe = 'ü' + str(1)", "x = [\n    'ä', 2 <\n    3]", "while x:\n    break"])
def test_a_change_keeps_what_stands_around_it(line: str, tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(f"x = None\n{line}\ny = 'é'\n", encoding="utf-8")
    found = list(mutants_of(tmp_path, "code.py"))
    assert found
    for mutant in found:
        assert mutant.source.startswith("x = None\n") and mutant.source.endswith("y = 'é'\n")


def test_an_edit_elsewhere_leaves_the_sample_and_the_names_as_they_are(tmp_path: Path) -> None:
    def drawn(code: str, seed: int) -> list[str]:
        (tmp_path / "code.py").write_text(code)
        return [mutant.name for mutant in sample(mutants_of(tmp_path, "code.py"), 4, seed)]

    assert drawn(CODE, 0) == drawn(f"x = []\n{CODE}y = [*x]\n", 0) != drawn(CODE, 1)
    (tmp_path / "twice.py").write_text("a = f(3)\nb = 1\na = f(3)\n")
    names = [mutant.name for mutant in mutants_of(tmp_path, "twice.py")]
    assert names[0] == "twice.py:  a = f(3)  :  3  ->  (4)" and names[2] == f"{names[0]}  #2"


def test_changes_that_are_called_harmless_are_changes_of_the_code_of_today() -> None:
    listed = harmless()
    paths = {name.partition(":")[0] for name in listed}
    assert listed.keys() <= {mutant.name for path in paths for mutant in mutants_of(ROOT, path)}
    assert all(len(reason) > 20 for reason in listed.values())


def test_every_central_file_has_tests_that_reach_it() -> None:
    files = central_files()
    assert "faithkit/packing.py" in files and len(files) > 50
    assert choose_tests("faithkit/packing.py")[0] == "tests/faithkit/test_packing.py"
    assert [path for path in files if not choose_tests(path)] == []


@pytest.mark.slow
def test_noticed_and_unnoticed_changes_are_told_apart_and_what_is_noticed_is_kept(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.mutation", "--only", "faithkit/metrics/outcomes.py", "--workers", "1"]
    command += ["--noticed", str(tmp_path / "noticed.txt")]
    first, second = (subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900) for _ in range(2))
    lines = [line.split() for line in first.stderr.splitlines() if "->" in line]
    assert "failed" in {line[0] for line in lines}, first.stderr
    unnoticed = sum(line[0] == "passed" for line in lines)
    assert first.stdout.count("not noticed: ") == unnoticed and f"{len(lines)} mutants" in first.stdout
    assert first.stdout == second.stdout and second.stderr.count("->") == unnoticed
