"""What README and the service's page show first is what the program answers."""

import csv
import json
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import faithkit
from faithkit_workflows.serve.app import EXAMPLES
from tests.running import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
SAMPLES = ROOT / "docs" / "examples"
LABELS = {"a wrong number": "hallucinated", "a supported answer": "faithful", "a contradiction": "hallucinated"}


def faithkit_command(*arguments: str) -> str:
    command = [sys.executable, "-m", "faithkit", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def block(start: str) -> str:
    """Returns README's code block that contains a text."""
    return next(text for text in re.findall(r"```\w*\n(.*?)```", README, re.DOTALL) if start in text)


def test_a_value_that_the_context_lacks_is_marked_whatever_the_encoder_is(default_file: Path) -> None:
    by = f"default:{default_file}"
    found = faithkit.check(context="The Danube flows through ten countries.", answer="It flows through twelve.", by=by)
    [span] = found.spans
    assert (found.label, span.text) == ("hallucinated", "twelve")
    assert span.evidence is not None and span.evidence.reason == "the context says ten"
    manual = (SAMPLES / "manual.txt").read_text(encoding="utf-8").split("\n\n")
    found = faithkit.check(context=manual, answer="The warranty lasts 36 months.", question="How long?", by=by)
    [span] = found.spans
    assert span.text == "36 months" and span.evidence is not None
    assert manual[span.evidence.passage][span.evidence.start : span.evidence.end] == span.evidence.text
    assert "24 months" in span.evidence.reason and "24 months" in span.evidence.text


def test_the_commands_of_readme_name_sample_files() -> None:
    for command in re.findall(r"^faithkit (?:check|score) .*$", README, re.MULTILINE):
        files = [word for word in shlex.split(command, comments=True) if word.endswith((".txt", ".csv"))]
        assert files and all((ROOT / file).is_file() for file in files), command


SHOWN = [  # the command `faithkit check` of a block, and the output in the next block
    (page.name, command[1], output)
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for block, output in pairwise(page.read_text(encoding="utf-8").split("```")[1::2])
    if (command := re.search(r"^(faithkit check .*)$", block, re.MULTILINE)) and output.startswith("text\n")
]


def test_three_pages_show_what_check_prints() -> None:
    assert {page for page, *_ in SHOWN} == {"README.md", "scoring.md", "agents.md"}


@pytest.mark.network
@pytest.mark.parametrize(("page", "command", "output"), SHOWN, ids=[page for page, *_ in SHOWN])
def test_a_page_shows_what_check_prints(page: str, command: str, output: str) -> None:
    assert faithkit_command(*shlex.split(command)[1:]) == output.removeprefix("text\n")


@pytest.mark.network
def test_readme_shows_what_python_gives() -> None:
    found = faithkit.check(context="The Danube flows through ten countries.", answer="It flows through twelve.")
    shown = block("found.label, found.probability")
    assert f"# ('{found.label}', {found.probability:.2f})" in shown
    [span] = found.spans
    assert span.evidence is not None and f"# ('{span.text}', '{span.evidence.reason}')" in shown


@pytest.mark.network
@pytest.mark.parametrize("example", EXAMPLES, ids=[example["name"] for example in EXAMPLES])
def test_a_button_of_the_page_shows_what_it_says(example: dict[str, str]) -> None:
    context, answer, question = (example[name] for name in ("context", "answer", "question"))
    found = faithkit.check(context=context.split("\n\n"), answer=answer, question=question)
    assert found.label == LABELS[example["name"]]
    assert bool(found.spans) == (found.label == "hallucinated")


@pytest.mark.network
def test_the_sample_table_is_judged_as_it_is_labelled(tmp_path: Path) -> None:
    faithkit_command("score", "docs/examples/answers.csv", f"run_dir={tmp_path / 'run'}", "seed=0")
    with (tmp_path / "run" / "answers.scored.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["faithkit_label"] for row in rows] == [row["label"] for row in rows]
    for row in rows:
        for span in json.loads(row["faithkit_spans"]):
            assert span["text"] in row["answer"] and span["evidence"] in row["context"] and span["reason"]
