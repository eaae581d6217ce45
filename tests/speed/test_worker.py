"""Processes in other environments that answer line by line."""

import sys

import pytest

from speed.worker import start_worker

ANSWER = """import json, os, sys
for line in sys.stdin:
    print(json.dumps([line.split(), os.environ["PEER"]]), flush=True)
"""


def test_a_worker_answers_each_line_and_has_its_environment() -> None:
    with start_worker([sys.executable, "-c", ANSWER], PEER="here") as ask:
        assert ask("predict", 0, 2) == [["predict", "0", "2"], "here"]
        assert ask("end") == [["end"], "here"]


def test_a_worker_that_ends_shows_its_error() -> None:
    with pytest.raises(SystemExit, match="ZeroDivisionError"), start_worker([sys.executable, "-c", "1 / 0"]) as ask:
        ask("predict")
