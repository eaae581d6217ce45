"""`faithkit compare`: several models on a user's rows, with labels, without, with some, and whatever goes wrong."""

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.reading.fields import alternate
from faithkit.errors import UserError
from faithkit.files.run_folder import write_config
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Prediction
from faithkit.settings.check import check_settings
from faithkit_workflows.audit.target import PASSAGES, passages_of, question_of
from faithkit_workflows.compare.model_comparison import (
    VERDICTS,
    AskedModel,
    ModelComparison,
    ask_models,
    compare_models,
    read_rows,
)
from faithkit_workflows.compare.model_page import ANSWERS, PAGE, REPORT, TO_LABEL, print_comparison, write_comparison
from faithkit_workflows.settings.reporting import CompareSettings
from tests.browser import PROGRAM, chromium
from tests.data_modules.official_rows import write
from tests.faithkit.inference.server import MODEL, ChatServer
from tests.faithkit_workflows.pipelines.serving import fill_sheet, sheet
from tests.faithkit_workflows.test_score import score_here
from tests.running import plain_config

MODULE = "tests.faithkit_workflows.audit.faulty"
GOOD, LENGTH, NEGATIONS = (f"{MODULE}:{name}" for name in ("good", "by_length", "raising_at_negations"))


def write_rows(path: Path, num_rows: int = 60, num_labels: int = 0) -> Path:
    """Rows of as many documents; every second answer is wrong, and the first ones have a label."""
    rows = []
    for number in range(num_rows):
        wrong = number % 2
        label = (HALLUCINATED if wrong else FAITHFUL) if number < num_labels else ""
        fact, answer = (f"The tower of Ort{number} is {height} metres high." for height in (90, 90 + 5 * wrong))
        texts = {"context": f"{fact} It was built before 1900.", "question": "How high is it?", "answer": answer}
        rows.append({**texts, "label": label})
    return write(path, rows)


def compare(path: Path, folder: Path, models: Sequence[str], *overrides: str) -> ModelComparison:
    """Compares in this process, and writes all files."""
    config = plain_config("compare", f"path='{path}'", f"models=[{','.join(models)}]", *overrides)
    rows, notes = read_rows(config)
    found = compare_models(rows, ask_models(rows, folder, config), num_to_label=config["num_to_label"])
    found.notes[:0] = notes
    write_comparison(folder, found, config)
    return found


def test_labels_show_which_model_is_better_beside_baselines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = compare(write_rows(tmp_path / "rows.csv", num_labels=60), tmp_path, [LENGTH, GOOD])
    accuracy = found.accuracy
    assert accuracy is not None and list(accuracy.models) == [GOOD, LENGTH], "the best first"
    assert accuracy.models[GOOD]["macro_f1"].value == 1 and accuracy.models[GOOD]["false_alarms"].value == 0
    assert set(accuracy.baselines) == {"word overlap", "response length", "boosted trees"}
    assert found.lines[0].startswith(f"{GOOD} is better than {LENGTH} (macro-F1 +")
    assert "Holm's p <0.001), on 60 labelled rows." in found.lines[0]
    assert "the strongest simple baseline" in found.lines[1]
    assert not found.to_label and not (tmp_path / TO_LABEL).exists()
    stored = json.loads((tmp_path / REPORT).read_text())
    assert stored["conclusion"] == found.lines and stored["models"][GOOD]["costs"]["rows"] == 59
    lines = [json.loads(line) for line in (tmp_path / ANSWERS).read_text().splitlines()]
    assert len(lines) == 60 and lines[1]["verdicts"][GOOD]["label"] == lines[1]["label"] == HALLUCINATED
    print_comparison(tmp_path, found)
    assert "word overlap" in (shown := capsys.readouterr().out) and found.lines[0] in shown and PAGE in shown


def test_rows_that_models_disagree_on_are_labelled_and_given_back(tmp_path, capsys) -> None:
    rows, models = write_rows(tmp_path / "rows.csv"), [GOOD, LENGTH, f"{MODULE}:always_yes"]
    found = compare(rows, tmp_path / "first", models, "num_to_label=40")
    assert found.accuracy is None and found.agreements[GOOD, LENGTH]["agreement"].value == 0.5
    assert f"{LENGTH} and {models[2]} agree least: on 0.0% of 60 rows (kappa 0.00)" in found.lines[0]
    path = tmp_path / "first" / TO_LABEL
    given_rows = sheet(path)
    assert len(given_rows) == 40 and not any(row["label"] for row in given_rows)
    fill_sheet(path, [{**row, "label": FAITHFUL if "90" in row["answer"] else HALLUCINATED} for row in given_rows])
    labels = path.read_bytes()
    assert "is kept" in compare(rows, tmp_path / "first", models).notes[-1] and path.read_bytes() == labels
    again = compare(path, tmp_path / "second", models)
    assert again.accuracy is not None and again.accuracy.num_rows == 40
    assert again.lines[0].startswith(f"{GOOD} is better than ") and "not shown" not in again.lines[0]
    score_here(f"path={path}", "checkpoint=default", f"run_dir={tmp_path / 'score'}")
    assert "By the 40 labels in the column label" in capsys.readouterr().out


texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(str.strip)


@given(passages=st.lists(texts, min_size=1, max_size=3, unique=True), question=texts, answer=texts)
def test_rows_to_label_keep_every_text(passages, question, answer, tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("texts")
    texts = {"knowledge": "\n\n".join(passages), "response": answer, "history": alternate([question])}
    row = Example(id="a:1", source="own rows", split="all", group="g", **texts, meta={PASSAGES: tuple(passages)})
    answers = [{"a:1": Prediction(id="a:1", label=label)} for label in (FAITHFUL, HALLUCINATED)]
    asked = [AskedModel(name=str(n), answers=one, problems=Counter(), costs={}) for n, one in enumerate(answers)]
    write_comparison(folder, compare_models([row], asked, num_to_label=5), {})
    ((found,), notes) = read_rows(plain_config("compare", f"path='{folder / TO_LABEL}'", "models=[a,b]"))
    assert (passages_of(found), question_of(found), found.response) == (tuple(passages), question, answer)
    assert found.group == "g" and found.label is None and not notes


def test_some_labels_give_accuracy_on_these_rows_and_others_to_label(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.csv", num_rows=40, num_labels=12)
    path.write_text(path.read_text() + "A cat.,Is it?,A dog.,purple\n")
    found = compare(path, tmp_path, [GOOD, LENGTH])
    assert found.accuracy is not None and found.accuracy.num_rows == 12 and not found.accuracy.baselines
    assert "Too few rows to tell which model is better: 12 labelled rows; at least 30" in found.lines[0]
    assert found.notes[0].startswith("1 labels in the column label have no known meaning")
    assert "12 of 41 rows have a label" in found.notes[1]
    assert found.to_label and not {row.id for row in found.to_label} & {f"rows:{number}" for number in range(12)}


def test_labels_of_one_class_show_no_difference(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.csv", num_labels=60)
    path.write_text(path.read_text().replace(",hallucinated", ",").replace("\r", ""))
    found = compare(path, tmp_path, [GOOD, LENGTH])
    assert found.accuracy is not None and list(found.accuracy.models[GOOD]) and found.accuracy.metric == "accuracy"
    assert f"{GOOD} is not shown to be better than {LENGTH} (accuracy +0.0 [0.0, 0.0]" in found.lines[0]
    assert found.lines[0].endswith("label about 30 more rows to see a difference of 5 points.")  # 60 without one
    assert found.lines[1].startswith("All 30 labels are faithful: label hallucinated rows too")
    assert {row.label for row in found.to_label} == {None} and len(found.to_label) == 30


def test_models_that_fail_are_counted_and_the_others_compared(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.csv", num_rows=80, num_labels=80)
    path.write_text(path.read_text().replace("Ort7 is 95", "Ort7 is not 95").replace("Ort9 is 95", "Ort9 is not 95"))
    broken = f"{MODULE}:raising"
    found = compare(path, tmp_path / "run", [GOOD, NEGATIONS, broken, str(tmp_path)])
    assert found.names == [GOOD, NEGATIONS] and len(found.common) == 78
    assert found.notes[0] == f"{NEGATIONS} has no verdict on 2 of 80 rows: KeyError: 'not' (2)."
    assert found.notes[1].startswith(f"{broken} has no verdict on 80 of 80 rows: not asked: too many failures in a row")
    assert "not loaded: " in found.notes[2] and found.notes[2].endswith("It is left out.")
    assert found.notes[3] == "Compared are the 78 of 80 rows that all models have judged."
    assert "equivalent (within 5 points) to" in found.lines[0]
    with pytest.raises(UserError, match="fewer than two models have judged the rows"):
        compare(path, tmp_path / "other", [GOOD, broken])


@pytest.mark.parametrize(
    ("models", "problem"),
    [
        ("[default]", "models names one model"),
        ("default", "name two or more in a list"),
        ("[default,default]", "models names a model twice"),
        ("[default,./runs/nothing]", "no such run or folder"),
        ("[default,no_module:function]", "no module no_module can be imported"),
        (f"[default,{MODULE}:nothing]", f"cannot import {MODULE}:nothing"),
        ("[default,'http://127.0.0.1:9']", "no server answers"),
        ("[default,'lettucedetect-base:./nothing']", "./nothing is not a folder"),
    ],
)
def test_names_that_lead_nowhere_are_refused_before_any_work(models: str, problem: str, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.csv", num_rows=4)
    config = plain_config("compare", f"path='{path}'", f"models={models}")
    with pytest.raises(UserError) as raised:
        check_settings(config, CompareSettings)
        ask_models(read_rows(config)[0], tmp_path / "run", config)
    assert problem in str(raised.value)
    assert not (tmp_path / "run" / VERDICTS).exists()


def test_a_resumed_comparison_asks_for_what_is_missing_reads_new_labels_and_refuses_new_texts(tmp_path: Path) -> None:
    path, folder = write_rows(tmp_path / "rows.csv"), tmp_path / "run"
    compare(path, folder, [GOOD, LENGTH])
    stores = [folder / VERDICTS / f"{number}.jsonl" for number in (1, 2)]
    texts, time = [store.read_text() for store in stores], stores[0].stat().st_mtime_ns
    stores[1].write_text("".join(texts[1].splitlines(keepends=True)[:20]))  # as an interruption leaves it
    again = compare(write_rows(path, num_labels=60), folder, [GOOD, LENGTH])
    assert again.accuracy is not None and again.lines[0].startswith(f"{GOOD} is better than {LENGTH}")
    assert [store.read_text() for store in stores] == texts and stores[0].stat().st_mtime_ns == time
    assert [one.costs["rows"] for one in again.asked] == [59, 59 + 40]
    path.write_text(path.read_text().replace("Ort9 ", "Ort99 "))
    with pytest.raises(UserError, match="texts of the table have changed"):
        compare(path, folder, [GOOD, LENGTH])


def test_tokens_of_two_models_of_a_server_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_rows(tmp_path / "rows.csv", num_rows=6)
    with ChatServer(tells={"Yes": 0.7, "No": 0.3}, models=("one", "two")) as server:
        names = [f"'{server.url}#one'", f"'{server.url}#two'"]
        found = compare(path, tmp_path, names)
    costs = [dict(one.costs) for one in found.asked]
    assert all(one["requests"] == 6 and one["tokens_read"] > 0 and "dollars" not in one for one in costs)
    assert [one["agreement"].value for one in found.agreements.values()] == [1] and not found.to_label
    found.to_label = found.common
    print_comparison(tmp_path, found)
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("  faithkit compare"))
    assert shlex.split(line)[-1] == f"models=[{','.join(names)}]"


def test_replies_from_the_cache_are_counted_and_said_to_be_free(tmp_path: Path) -> None:
    path, files = write_rows(tmp_path / "rows.csv", num_rows=6), [tmp_path / f"{name}.yaml" for name in "ab"]
    with ChatServer(tells={"Yes": 0.7, "No": 0.3}) as server:
        for file in files:
            engine = {"name": "openai", "model": MODEL, "base_url": server.url, "cache": str(tmp_path / "replies")}
            write_config(file, {"engine": engine})
        found = compare(path, tmp_path / "run", list(map(str, files)))
    costs = [one.costs for one in found.asked]
    assert [(one["from_cache"], one["requests"]) for one in costs] == [(0, 6), (6, 0)]
    (note,) = (note for note in found.notes if "from the cache" in note)
    assert note.startswith(f"{files[1]}: 6 replies came from the cache")


def spoiling(rows: list[dict[str, Any]]) -> list[float]:
    return [float("<b>" in row["answer"]) for row in rows]


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="needs the program chromium")
def test_a_reader_sees_texts_as_texts_and_where_models_disagree(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.csv", num_labels=30)
    path.write_text(path.read_text().replace("Ort3 is 95", "Ort3 <b>is</b> 95"))
    compare(path, tmp_path, [GOOD, LENGTH, f"{__name__}:spoiling"])
    with chromium() as browser:
        browser.open_file(tmp_path / PAGE)
        assert browser.ask("document.body.dataset.ready") == "true" and browser.texts("#count") == ["30 of 60 answers"]
        assert not browser.texts("article b b") and any("<b>is</b>" in text for text in browser.texts("article"))
        assert browser.texts("#facets label")[0].startswith("First model")
        browser.select("[name=called]", "=2 of 3 models call it hallucinated")
        assert browser.texts("#count") == ["1 of 60 answers"] and not browser.complaints
