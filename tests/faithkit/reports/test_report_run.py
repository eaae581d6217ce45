import json
import unicodedata
from dataclasses import replace

import numpy as np
import pytest

from faithkit.baselines.word_features import fit_overlap, mismatch_predictions
from faithkit.files.run_folder import RunFolder
from faithkit.pages.page_tables import render_text
from faithkit.provenance.used_model import UsedModel
from faithkit.published.figures import ragtruth_models
from faithkit.records import Prediction, Span, Turn
from faithkit.reports.perplexity_report import perplexity_report
from faithkit.reports.report import Provenance, build_sample
from faithkit.reports.write_reports import ReportOptions, detection_reports, print_summary, write_run_results
from faithkit.statistics.metric import Metric, full_names, write_results
from tests.data_modules import examples


def test_the_file_is_what_outside_programs_were_promised(tmp_path):
    metrics = full_names("test", "begin", {"macro_f1": Metric(value=0.71, low=0.69, high=0.73, n=1864)})
    write_results(tmp_path / "metrics.json", metrics | {"train/begin/loss": Metric(value=0.5)}, {"seed": 0})
    whole = {"value": 0.71, "low": 0.69, "high": 0.73, "n": 1864}
    assert json.loads((tmp_path / "metrics.json").read_text()) == {
        "metrics": {"test/begin/macro_f1": whole, "train/begin/loss": {"value": 0.5}},
        "meta": {"seed": 0},
    }


CONTEXT = "The kiwi is a small bird of New Zealand."


def example(id_, response, wrong="", *, spans=True, **meta):
    start = response.find(wrong) if wrong else -1
    marks = (Span(start=start, end=start + len(wrong), label="evident_baseless"),) if wrong else ()
    values = {"source": "ragtruth", "split": "test", "knowledge": CONTEXT, "response": response, "meta": meta}
    return examples.example(
        id=id_, **values, label="hallucinated" if wrong else "faithful", spans=marks if spans else None
    )


EXAMPLES = [
    example("0", "The kiwi is a bird.", task="QA", model="gpt-4-0613"),
    example("1", "The kiwi can fly far.", "can fly far", task="QA", model="gpt-4-0613"),
    example("2", "A small bird, green and loud.", "green and loud", task="Summary", model="llama-2-7b-chat"),
    example("3", "New Zealand's small bird.", task="Summary", model="llama-2-7b-chat"),
]
FOUND = [
    Prediction(id=e.id, label=e.label, score=0.9 if e.spans else 0.2, spans=e.spans or (), text="") for e in EXAMPLES
]


def report_detection(run, sets, *, meta, num_resamples, verbose=True, **options):
    found = detection_reports(sets, meta=meta, num_resamples=num_resamples, **options)
    config = meta.get("config", {}) | {"verbose": verbose}
    return write_run_results(run, found, meta={**meta, "config": config})


def numbers(tmp_path):
    return {name: row["value"] for name, row in json.loads((tmp_path / "metrics.json").read_text())["metrics"].items()}


def test_a_tagger_is_shown_beside_baselines_and_published_figures(tmp_path, capsys):
    report_detection(RunFolder(tmp_path), {"ragtruth": (EXAMPLES, FOUND)}, meta={}, num_resamples=20)
    found = numbers(tmp_path)
    for name in ("response_f1", "char_f1", "task/qa/char_f1", "model/gpt-4-0613/response_f1", "macro_f1"):
        assert found[f"test/ragtruth/{name}"] == 1.0, name
    assert found["test/ragtruth/type/evident_baseless/char_recall"] == 1.0
    marked, size = sum(len("can fly far") for _ in "a") + len("green and loud"), sum(len(e.response) for e in EXAMPLES)
    assert found["test/ragtruth/all_characters_char_precision"] == pytest.approx(marked / size)
    for level in ("char", "response"):
        assert found[f"test/ragtruth/all_characters_{level}_recall"] == 1.0
        assert found[f"test/ragtruth/no_spans_{level}_f1"] == 0.0
    assert 0 < found["test/ragtruth/task/qa/mismatch_char_f1"] <= 1.0
    assert found["test/ragtruth/task/summary/response_by_spans_f1"] == 1.0
    shown = capsys.readouterr().out
    tables = ("by response", "by character", "by task", "by type", "by generator model")
    for part in (*tables, "LettuceDetect large", "model, any span"):
        assert part in shown, part
    assert "model, any span" in shown.partition("by character")[0], "the rule that any span counts is of responses"
    assert "these responses are a part of the official ones" in shown
    assert "The kiwi [[can fly far|evident_baseless]]." in shown
    assert all(len(line) <= 80 for line in shown.splitlines() if line[:1] in "+|")


@pytest.mark.parametrize(
    ("name", "meta", "model"),
    [
        ("ragtruth", {"data": {"path": "embedded"}}, "gpt-4-0613"),
        ("ragtruth", {"config": {"data": {"path": "embedded"}}}, "gpt-4-0613"),
        ("ragtruth", {}, "another model"),
        ("other", {}, "gpt-4-0613"),
    ],
)
def test_published_figures_stand_beside_their_own_data_alone(tmp_path, capsys, name, meta, model):
    rows = [example(str(row), "A bird can fly.", "can fly", task="QA", model=model) for row in range(3)]
    said = [Prediction(id=e.id, label="hallucinated", spans=e.spans) for e in rows]
    report_detection(RunFolder(tmp_path), {name: (rows, said)}, meta=meta, num_resamples=5)
    shown = capsys.readouterr().out
    assert "by character" in shown and "LettuceDetect" not in shown
    assert model.lower() not in ragtruth_models() - {"gpt-4-0613"}


@pytest.mark.parametrize("is_known", [True, False])
def test_a_critic_keeps_its_report_on_data_with_spans(tmp_path, capsys, is_known):
    said = [Prediction(id=p.id, label=p.label, score=p.score) for p in FOUND]
    critic = UsedModel(role="checkpoint", path="runs/c", kind="critic", weights=None, threshold=None, reason="gone")
    origins = {"ragtruth": Provenance.of("ragtruth", EXAMPLES, [critic])} if is_known else None
    report_detection(RunFolder(tmp_path), {"ragtruth": (EXAMPLES, said)}, meta={}, num_resamples=20, origins=origins)
    found, shown = numbers(tmp_path), capsys.readouterr().out
    assert found["test/ragtruth/response_f1"] == found["test/ragtruth/macro_f1"] == 1.0
    assert "word overlap" in shown and "by character" not in shown
    assert ("no prediction marks a character" in shown) is not is_known
    if is_known:  # a critic cannot mark spans
        assert not any("char_" in name or "by_spans" in name for name in found)
        assert "leaks: unknown for runs/c: gone" in shown
    else:
        assert found["test/ragtruth/char_f1"] == 0.0


def test_data_without_spans_has_the_classification_report_alone(tmp_path, capsys):
    rows = [example(e.id, e.response, "kiwi" if e.spans else "", spans=False) for e in EXAMPLES[:2]]
    rows.append(example("2", "Birds."))
    report_detection(RunFolder(tmp_path), {"begin": (rows, FOUND[:3])}, meta={}, num_resamples=5)
    assert not any("char_" in name or "response_" in name for name in numbers(tmp_path))
    assert "macro_f1" in capsys.readouterr().out


def test_answers_that_a_generator_wrote_are_shown_wherever_they_stand():
    rows = np.ones((len(EXAMPLES), 3))
    report = perplexity_report(EXAMPLES, rows, {"1": "It can not.", "3": "It is."}, title="t", num_resamples=5)
    assert [row["id"] for row in report.samples] == ["1", "3"]
    shown = render_text(*report.tables)
    assert "It can not." in shown and "It is." in shown and "A small bird" not in shown


@pytest.mark.parametrize("size", [0, 1, 3])
def test_a_sample_has_the_last_turn(size):
    history = tuple(Turn(speaker="seeker", text=f"turn {n}") for n in range(size))
    assert build_sample(replace(EXAMPLES[0], history=history))["last_turn"] == (f"turn {size - 1}" if size else "")


def test_the_mismatch_baseline_marks_the_words_that_are_not_there():
    few, none = replace(example("few", CONTEXT), knowledge="the of bird"), example("none", CONTEXT.upper())
    marked = mismatch_predictions([few, none, replace(none, id="empty", knowledge="", response="")])
    assert [CONTEXT[s.start : s.end] for s in marked["few"].spans] == ["kiwi is a small", "New Zealand"]
    assert marked["none"].spans == marked["empty"].spans == ()
    fitted = mismatch_predictions(EXAMPLES, fit_overlap(EXAMPLES, "f1"))
    assert [fitted[e.id].label for e in EXAMPLES] == [e.label for e in EXAMPLES]


def test_the_terminal_has_one_headline_and_the_files_have_everything(tmp_path, capsys):
    steering = "The kiwi \x1b[31mcan fly\x07 far."
    rows = [*EXAMPLES, example("4\x1b]0;x\x07", steering, "can fly", task="QA", model="<b>")]
    said = [*FOUND, Prediction(id=rows[-1].id, label="hallucinated", score=0.9, spans=rows[-1].spans)]
    report_detection(RunFolder(tmp_path), {"ragtruth": (rows, said)}, meta={}, num_resamples=20, verbose=False)
    print_summary(RunFolder(tmp_path), ReportOptions(), [("score rows", "faithkit score FILE")])
    shown = capsys.readouterr().out
    report, page = (tmp_path / "report.md").read_text(), (tmp_path / "answers.html").read_text()
    assert shown.count("percent") == 1 and "character F1" in shown and "by task" not in shown
    assert "by task" in report and "predictions to judge" in report and "score rows: faithkit score FILE" in shown
    assert shown.splitlines()[-1] == f"answers: {(tmp_path / 'answers.html').as_uri()}"
    assert "character F1" in page.partition("<main>")[0] and "by task" in page.partition("<main>")[0]
    for text in (shown, report, page):
        assert not [c for c in text if unicodedata.category(c) == "Cc" and c != "\n"]
    assert all(len(line) <= 80 for line in shown.splitlines()[: shown.count("|")] if "|" in line)
