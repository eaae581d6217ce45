"""What a terminal gets: colours unless NO_COLOR is set, and tables that fit its width."""

import os
import pty
import subprocess
import sys

import pytest

from tests.running import ROOT

SHOWING = """
from faithkit.pages.page_tables import new_number_table, predictions_table, print_tables
from faithkit.records import Example, Prediction
texts = dict(id="a" * 150, knowledge="k " * 90, response="r" * 200)
row = Example(source="s", split="test", group="g", label="faithful", **texts)
said = {row.id: Prediction(id=row.id, label="hallucinated", score=0.9)}
wide = new_number_table("runs/" + "long-" * 40, "system", [f"metric {n}" for n in range(6)], no_wrap=["metric 5"])
wide.add_row("my-system-of-a-long-name-" * 4, *["71.2 [69.0, 73.1]"] * 6)
print_tables(predictions_table([row], said, title="predictions"), wide)
"""


def on_a_terminal(columns: int, **environment: str) -> str:
    """The output of a process whose output is a terminal of this width."""
    main, worker = pty.openpty()
    given = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    given |= {
        "TERM": "xterm-256color",
        "COLUMNS": str(columns),
        "PYTHONPATH": str(ROOT),
        "PYTHONUTF8": "1",
        **environment,
    }
    with subprocess.Popen([sys.executable, "-c", SHOWING], stdout=worker, env=given) as process:
        os.close(worker)
        found = b""
        try:
            while block := os.read(main, 65536):
                found += block
        except OSError:  # how Linux tells that the other end is closed
            pass
        os.close(main)
    assert process.returncode == 0
    return found.decode().replace("\r\n", "\n")


def test_a_terminal_gets_colours_unless_they_are_not_wanted() -> None:
    red = "\x1b[31m"
    assert red in on_a_terminal(80)
    plain = on_a_terminal(80, NO_COLOR="1")
    assert red not in plain and "called hallucinated" in plain
    assert not any(f"\x1b[{code}m" in plain for code in (*range(30, 38), *range(40, 48), *range(90, 98)))


@pytest.mark.parametrize("columns", [80, 120])
def test_wide_tables_and_long_names_fit_the_terminal_and_nothing_is_cut(columns: int) -> None:
    shown = on_a_terminal(columns, NO_COLOR="1", TERM="dumb")
    lines = shown.splitlines()
    assert max(map(len, lines)) <= columns and "\u2026" not in shown
    together = "".join(character for character in shown if character.isalnum() or character in ".,[]-")
    assert "a" * 150 in together and "r" * 200 in together
    assert shown.count("69.0,") == 6
