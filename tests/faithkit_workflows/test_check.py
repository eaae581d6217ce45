"""`faithkit check`: one answer, its verdict, and the evidence of each mark."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from faithkit.records import HALLUCINATED, UNTYPED, Example, Prediction, Span
from faithkit_workflows import check

CONTEXT, ANSWER = "The bag is red.\n", "The bag is blue."
Run = Callable[..., int]


class Marking:
    """Marks the last word."""

    def predict_examples(self, examples: list[Example], *, progress: bool = False) -> list[Prediction]:
        [example] = examples
        question = "".join(turn.text for turn in example.history)
        end = len(example.response) - 1
        span = Span(start=example.response.rindex(" ") + 1, end=end, label=UNTYPED, score=0.75)
        return [Prediction(id=example.id, label=HALLUCINATED, score=0.9, spans=(span,), text=question)]

    def set_threshold(self, threshold: float) -> None:
        self.threshold = threshold


MARKING = f"{__name__}:Marking:"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.setattr(Marking, "load", classmethod(lambda cls, path, **options: cls()), raising=False)
    monkeypatch.chdir(tmp_path)
    Path("bag.txt").write_text(CONTEXT)
    Path("other.txt").write_text("It is old.")

    def run(*arguments: str) -> int:
        monkeypatch.setattr("sys.argv", ["faithkit check", *arguments])
        with pytest.raises(SystemExit) as exit_code:
            check.run()
        return int(exit_code.value.code or 0)

    return run


OPTIONS, KEYS, MIXED = (
    ["--context", "other.txt", "--context", "bag.txt", "--checkpoint", MARKING, "--threshold", ".5", ANSWER],
    ["context=other.txt", "context=bag.txt", f"checkpoint={MARKING}", "threshold=0.5", f"answer={ANSWER}"],
    ["--knowledge=other.txt", "knowledge=bag.txt", f"--checkpoint={MARKING}", "threshold=.5", "--response", ANSWER],
)


@pytest.mark.parametrize("arguments", [OPTIONS, KEYS, MIXED])
def test_options_have_two_forms_and_json_has_the_result(run, arguments, capsys) -> None:
    assert run(*arguments, "json=true", "fail=false", "question=Which?") == 0
    reason = "the closest sentence of the context"
    evidence = {"text": "The bag is red.", "start": 0, "end": 15, "passage": 1, "reason": reason}
    span = {"start": 11, "end": 15, "text": "blue", "type": UNTYPED, "probability": 0.75, "evidence": evidence}
    span |= {"relation": None, "element": None}
    found = json.loads(capsys.readouterr().out)
    assert found | {"label": HALLUCINATED, "probability": 0.9, "spans": [span], "model": MARKING} == found
    assert found["threshold"] == 0.5
    assert run(*arguments, "--fail") == 1


def test_a_mark_of_the_default_has_its_type(run: Run, default_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("manual.txt").write_text("The warranty lasts 24 months.")
    checked = ("--context", "manual.txt", f"--checkpoint=default:{default_file}", "The warranty lasts 36 months.")
    assert run(*checked, "--threshold=0", "--json") == 0
    [span] = json.loads(capsys.readouterr().out)["spans"]
    assert (span["text"], span["relation"], span["element"]) == ("36 months", "contradiction", "number")
    assert run(*checked, "--threshold=0") == 0
    assert '"36 months" (contradiction, number): the context says 24 months' in capsys.readouterr().out


def test_the_text_quotes_the_sentence_of_each_mark(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--context", "bag.txt", "--checkpoint", MARKING, ANSWER) == 0
    marked, reason = capsys.readouterr().out.splitlines()[1:-1]
    assert marked == "The bag is [[blue|0.75]]." and '"blue": ' in reason and reason.endswith('"The bag is red."')


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--contxt", "bag.txt", "a"], "unknown option '--contxt'\n  hint: did you mean --context?"),
        (["context=bag.txt", "answer=a", "b"], "the answer is given twice"),
        (["context=bag.txt", "json=yes", "a"], "json is 'yes'\n  hint: json=true or json=false"),
        (["--context", "bag.txt", "it", "lasts"], "quote a text of several words; unexpected argument 'lasts'"),
        (["a", "--context"], "expected one argument"),
        (["a"], "no context is given"),
    ],
)
def test_a_wrong_command_is_explained(run, arguments, words, capsys) -> None:
    assert run(*arguments) == 2
    assert words in capsys.readouterr().err


def test_a_text_in_another_language_is_named_refused_or_ignored(run, capsys, caplog) -> None:
    Path("de.txt").write_text("Die Tasche ist rot, und sie ist nicht neu, aber sie ist von einem Designer.")
    given = ("--context", "de.txt", "--checkpoint", MARKING, "Sie ist blau.", "--json")
    assert run(*given) == 0 and json.loads(capsys.readouterr().out)["language"] == "de"
    assert "does not read: de; it reads en" in caplog.text
    assert run(*given, "--on-language", "ignore") == 0 and "language" not in json.loads(capsys.readouterr().out)
    assert run(*given, "on_language=stop") == 2 and "on_language=warn" in capsys.readouterr().err
    assert run("--context", "bag.txt", "--checkpoint", MARKING, ANSWER, "--json") == 0
    assert "language" not in json.loads(capsys.readouterr().out)
