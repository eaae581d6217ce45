"""`evaluate.py` on generated responses, with loggers, and with rows to fit on."""

import csv
import json
from pathlib import Path

import pytest

from data_modules.embedded.corpus import Embedded
from data_modules.embedded.layouts import written_layout
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.errors import UserError
from faithkit.runs.reading import read_run
from faithkit_workflows.compare.comparison import compare_runs, main_metric
from faithkit_workflows.compare.comparison_tables import conclusion_lines
from tests.data_modules.official_rows import write
from tests.faithkit.training.wandb_files import offline_runs, table_of
from tests.running import evaluate_here, metrics_of, values_of

NO_MODELS = ("benchmark.bert_score.encoder=null",)


def dialogues(folder: Path) -> Path:
    """FaithDial's layout: three dialogues of two turns; the second turn of each is unanswerable."""
    rows = []
    for number, colour in enumerate(["red", "blue", "green"]):
        knowledge = f"The {colour} river flows through {number + 2} old cities."
        turn = {"history": [f"What is the {colour} river?"], "knowledge": knowledge, "original_response": None}
        said = {f"It flows through {number + 2} cities.": "Entailment", "I'm not sure, but it is old.": "Generic"}
        turns = [{**turn, "response": text, "BEGIN": [tag], "VRM": ["Edification"]} for text, tag in said.items()]
        rows.append({"dialog_idx": number, "utterances": turns})
    return write(folder / "test.json", rows)


def responses(path: Path, texts: dict[str, str]) -> Path:
    return write(path, [{"id": id_, "text": text} for id_, text in texts.items()])


IDS = [f"{dialogue}:{turn}" for dialogue in range(3) for turn in range(2)]
GOOD = {id_: "It flows through old cities." if id_.endswith("0") else "I don't know, it is old." for id_ in IDS}
BAD = dict.fromkeys(IDS, "I love music and food!")


@pytest.fixture
def data(tmp_path: Path) -> str:
    return f"benchmark.path={dialogues(tmp_path)}"


def test_a_predictions_file_is_scored_beside_baselines(data, tmp_path, capsys):
    file, run = responses(tmp_path / "good.jsonl", GOOD), tmp_path / "run"
    evaluate_here("benchmark=faithdial", data, f"predictions={file}", f"run_dir={run}", *NO_MODELS)
    found = values_of(run)
    assert found["test/faithdial/fallback_unanswerable"] == 1.0 and found["test/faithdial/fallback_answerable"] == 0.0
    assert found["test/faithdial/gold/bleu"] == pytest.approx(100.0)
    assert found["test/faithdial/copy/knowledge_f1"] == found["test/faithdial/copy/coverage"] == 1.0
    names = "knowledge_f1 bleu rouge_1 rouge_2 rouge_l density coverage distinct_1 num_words".split()
    assert {f"test/faithdial/{name}" for name in names} <= found.keys()
    rows = [json.loads(line) for line in (run / "scores" / "faithdial.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == IDS and rows[0]["fallback_unanswerable"] is None
    shown = capsys.readouterr().out
    assert all(f"{name} is left out" in shown for name in ("critic_rate", "Q2", "BERTScore"))
    assert shown.splitlines()[-1] == f"answers: {(run / 'answers.html').as_uri()}"
    assert "I don't know, it is old." in (run / "report.md").read_text()
    assert "I don't know, it is old." in (run / "answers.html").read_text()
    [first, *_] = [json.loads(line) for line in (run / "predictions" / "faithdial.jsonl").read_text().splitlines()]
    assert first["id"] == IDS[0] and first["reference"] and first["text"] == GOOD[IDS[0]]


def test_two_files_are_compared_by_a_paired_bootstrap(data, tmp_path, capsys):
    good, bad = responses(tmp_path / "good.jsonl", GOOD), responses(tmp_path / "bad.jsonl", BAD)
    run = tmp_path / "run"
    options = [f"predictions={good}", f"against={bad}", f"run_dir={run}", "benchmark.baselines=[]", *NO_MODELS]
    evaluate_here("benchmark=faithdial", data, *options)
    found = values_of(run)
    difference = found["test/faithdial/knowledge_f1"] - found["test/faithdial/against/knowledge_f1"]
    assert found["test/faithdial/difference/knowledge_f1"] == pytest.approx(difference) and difference > 0
    assert 0 < found["test/faithdial/p_value/knowledge_f1"] <= 1
    assert "paired" in capsys.readouterr().out


def test_two_generators_are_compared_on_shared_rows(data, tmp_path, capsys):
    good, bad = responses(tmp_path / "good.jsonl", GOOD), responses(tmp_path / "bad.jsonl", BAD)
    for name, file in {"careful": good, "chatty": bad}.items():
        evaluate_here("benchmark=faithdial", data, f"predictions={file}", f"run_dir={tmp_path / name}", *NO_MODELS)
    runs = read_run(tmp_path / "chatty"), read_run(tmp_path / "careful")
    comparison = compare_runs(runs, num_resamples=50)
    [pair] = comparison.pairs
    difference = pair.differences[main_metric(pair)]
    expected = values_of(tmp_path / "careful")["test/faithdial/knowledge_f1"]
    assert (pair.first, main_metric(pair), difference.n) == ("careful", "knowledge_f1", 6)
    assert difference.value == pytest.approx(expected)
    assert any("too few rows to decide" in line for line in conclusion_lines(comparison))


def test_a_detector_and_an_encoder_judge_the_responses(data, tmp_path, trained, tiny_bert):
    file, run = responses(tmp_path / "good.jsonl", GOOD), tmp_path / "run"
    options = [f"predictions={file}", f"run_dir={run}", f"benchmark.critic={trained}"]
    evaluate_here("benchmark=faithdial", data, *options, f"benchmark.bert_score.encoder={tiny_bert}")
    found = values_of(run)
    assert 0 <= found["test/faithdial/critic_rate"] <= 1 and 0 < found["test/faithdial/critic_score"] < 1
    assert found["test/faithdial/copy/bertscore_f1"] == pytest.approx(1.0, abs=1e-6)


def test_the_official_protocol_stands_beside_ours_under_its_own_names(data, tmp_path, tiny_bert, capsys):
    file, run = responses(tmp_path / "good.jsonl", GOOD), tmp_path / "run"
    encoder = f"benchmark.bert_score.encoder={tiny_bert}"
    options = [data, f"predictions={file}", "benchmark.official=true", encoder]
    evaluate_here("benchmark=faithdial", *options, f"run_dir={run}")
    found = values_of(run)
    for name in ("official_f1", "official_bleu", "copy/official_f1", "knowledge_f1", "bleu"):
        assert f"test/faithdial/{name}" in found, name
    assert "test/faithdial/official_bertscore" not in found
    shown = capsys.readouterr().out
    assert "official BLEU" in shown and "benchmark.bert_score.baseline=NUMBER" in shown
    evaluate_here("benchmark=faithdial", *options, f"run_dir={tmp_path / 'b'}", "benchmark.bert_score.baseline=0.5")
    f1 = [values_of(tmp_path / "b")[f"test/faithdial/{name}"] for name in ("bertscore_f1", "official_bertscore")]
    assert f1[1] < f1[0]


@pytest.mark.parametrize(
    ("texts", "options", "problem"),
    [
        (dict.fromkeys(IDS[1:], "a"), "predictions={file}", r"1 of 6 examples have no prediction \('0:0'\)"),
        (GOOD | {"9:9": "a", "9:8": "b"}, "predictions={file}", r"2 of 8 .* have no example \('9:9', '9:8'\)"),
        (dict.fromkeys(IDS, ""), "predictions={file}", "hold no responses"),
        ({}, "predictions={twice}", "already given on line 1"),
        ({}, "", "neither checkpoint nor predictions"),
        ({}, "checkpoint={critic}", "checkpoint is a critic, not a generator"),
        (GOOD, "predictions={file} benchmark.q2.questions=a/b", "Q2 needs benchmark.q2.answers, benchmark.nli"),
    ],
)
def test_what_cannot_be_scored_is_refused(data, tmp_path, trained, texts, options, problem):
    files = {"file": responses(tmp_path / "file.jsonl", texts), "twice": responses(tmp_path / "twice.jsonl", GOOD)}
    files["twice"].write_text(files["twice"].read_text() * 2)
    given = options.format(**files, critic=trained).split()
    with pytest.raises(UserError, match=problem):
        evaluate_here("benchmark=faithdial", data, *given, f"run_dir={tmp_path / 'run'}", *NO_MODELS)


def test_what_is_there_is_scored_when_that_is_asked_for(data, tmp_path, capsys):
    some = {id_: GOOD[id_] for id_ in IDS[2:]} | {"9:9": "a"}
    file, run = responses(tmp_path / "file.jsonl", some), tmp_path / "run"
    options = [f"predictions={file}", f"run_dir={run}", "benchmark.incomplete=true"]
    evaluate_here("benchmark=faithdial", data, *options, *NO_MODELS)
    assert "only 4 of 6 examples and of 5 responses are scored" in capsys.readouterr().out
    other = responses(tmp_path / "other.jsonl", {IDS[2]: "a"})
    again = [f"predictions={file}", f"against={other}", f"run_dir={tmp_path / 'again'}", "benchmark.incomplete=true"]
    with pytest.raises(UserError, match="against: 3 of 4 examples have no prediction"):
        evaluate_here("benchmark=faithdial", data, *again, *NO_MODELS)


def test_several_datasets_make_one_table(tmp_path, capsys):
    files = {"cmu_dog": "cmu_dog_test_turns.jsonl", "topical_chat": "test_freq_turns.jsonl", "wow": "wow_test.json"}
    folders, options = {name: tmp_path / name for name in files}, []
    turn = {"history": ["a film?"], "knowledge": "The film is old.", "response": "The film is old."}
    for name, folder in folders.items():
        folder.mkdir()
        file, ids = folder / files[name], IDS
        if name == "wow":
            rows = json.loads(dialogues(folder).rename(file).read_text())
            untagged = [[{**one, "BEGIN": None, "VRM": None} for one in row["utterances"]] for row in rows]
            file.write_text(json.dumps([{**r, "utterances": u} for r, u in zip(rows, untagged, strict=True)]))
        else:
            write(file, [turn | {"conv": f"c{i}"} for i in range(4)])
            ids = [f"{file.stem}:{i}" for i in range(4)]
        said = responses(folder / "said.jsonl", dict.fromkeys(ids, "The film is an old film."))
        options += [f"benchmark.datasets.{name}.path={folder}", f"benchmark.datasets.{name}.predictions={said}"]
    run = tmp_path / "run"
    evaluate_here("benchmark=transfer_responses", *options, f"run_dir={run}", "num_examples=0", *NO_MODELS)
    assert {f"test/{name}/knowledge_f1" for name in folders} <= set(values_of(run))
    shown = capsys.readouterr().out
    assert "responses across datasets" in shown and all(name in shown for name in folders)


def test_several_systems_on_one_dataset_have_names_of_their_own(data, tmp_path):
    path = data.removeprefix("benchmark.path=")
    good, bad = responses(tmp_path / "good.jsonl", GOOD), responses(tmp_path / "bad.jsonl", BAD)
    sets = [
        f"{name}: {{dataset: faithdial, path: '{path}', predictions: '{file}', against: '{good}'}}"
        for name, file in {"careful": good, "chatty": bad}.items()
    ]
    run = tmp_path / "run"
    given = f"+benchmark.datasets={{{', '.join(sets)}}}"
    evaluate_here("benchmark=faithdial", given, f"run_dir={run}", "num_examples=0", *NO_MODELS)
    found = values_of(run)
    assert found["test/careful/difference/knowledge_f1"] == 0 > found["test/chatty/difference/knowledge_f1"]


ROWS = ("benchmark=embedded", "benchmark.options.num_test=24")


@pytest.fixture
def predictions(tmp_path: Path) -> Path:
    """A predictions file of a tool that calls everything hallucinated."""
    examples = read_examples(Embedded(num_test=24), "test", ReadReport())
    rows = [{"id": example.id, "label": "hallucinated", "score": 0.9} for example in examples]
    return write(tmp_path / "given.jsonl", rows)


def test_metrics_and_a_sample_reach_every_logger(predictions: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    loggers = ("logger=[csv,tensorboard,wandb]", "logger.wandb.offline=true", "num_examples=3")
    evaluate_here(*ROWS, f"predictions={predictions}", f"run_dir={run}", *loggers)
    metrics = json.loads((run / "metrics.json").read_text())["metrics"]
    with (run / "csv" / "test_metrics.csv").open(newline="") as file:
        rows = {row["metric"]: row for row in csv.DictReader(file)}
    assert rows.keys() == metrics.keys()
    f1 = metrics["test/embedded/macro_f1"]
    assert {name: float(rows["test/embedded/macro_f1"][name]) for name in ("value", "low", "high", "n")} == f1
    with (run / "csv" / "test_predictions.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 3
    assert list((run / "tensorboard").iterdir())
    (found,) = offline_runs(run)
    assert found.exit_code == 0 and found.names.job_type == "evaluate"
    assert found.summary["test/embedded/macro_f1/high"] == f1["high"]
    assert len(table_of(found, "test/embedded/predictions")["data"]) == 3


@pytest.fixture(scope="module")
def begin() -> str:
    return written_layout("begin", {"validation": 120, "test": 80})


def evaluate(begin: str, folder: Path, *given: str) -> None:
    evaluate_here("benchmark=begin", "verbose=true", f"benchmark.path={begin}", f"run_dir={folder}", *given)


def test_the_baseline_takes_the_threshold_of_the_rows_that_the_models_came_from(begin, trained, tmp_path, capsys):
    kept = json.loads((trained / "hf" / "faithkit.json").read_text())["origin"]["baselines"]["word_overlap"]
    assert kept["num_rows"] == 60 and 0 <= kept["macro_f1"] <= 1.1
    evaluate(begin, tmp_path / "a", f"checkpoint={trained}")
    assert "60 validation rows of the training" in " ".join(capsys.readouterr().out.split())


def test_named_rows_fit_every_baseline_and_the_model_itself(begin, trained, tmp_path, capsys) -> None:
    folder, fit_on = tmp_path / "run", f"benchmark.fit_on=[{{dataset: begin, path: '{begin}', split: validation}}]"
    evaluate(begin, folder, f"checkpoint={trained}", fit_on)
    shown, found = capsys.readouterr(), metrics_of(folder)
    for key in ("majority", "overlap", "length", "counted", "refitted"):
        value = found["test/begin/macro_f1"]["value"] - found[f"test/begin/{key}_macro_f1"]["value"]
        assert found[f"test/begin/difference/{key}_macro_f1"]["value"] == pytest.approx(value)
        assert f"test/begin/p_value/{key}_macro_f1" in found
    told = " ".join(shown.out.split())
    assert "rows of begin" in told and "model, threshold" in told
    threshold = json.loads((folder / "metrics.json").read_text())["meta"]["test_sets"]["begin"]["threshold"]
    assert f"to use it: faithkit score ... threshold={threshold:.4f}" in told
    ours = [json.loads(line)["score"] for line in (folder / "predictions" / "begin.jsonl").read_text().splitlines()]
    assert min(ours) <= threshold <= max(ours)
    rows = (folder / "predictions" / "begin-fit_on.jsonl").read_text().splitlines()
    # Without a model its own threshold stays, and the baselines are fitted all the same.
    given = f"predictions={folder / 'predictions' / 'begin.jsonl'}"
    evaluate(begin, tmp_path / "given", given, fit_on)
    again = metrics_of(tmp_path / "given")
    assert again["test/begin/counted_macro_f1"] == found["test/begin/counted_macro_f1"]
    assert "test/begin/refitted_macro_f1" not in again and len(rows) > 60


def test_rows_whose_knowledge_is_tested_fit_nothing(begin: str, trained: Path, tmp_path: Path) -> None:
    tested = f"benchmark.fit_on=[{{dataset: begin, path: '{begin}', split: test}}]"
    with pytest.raises(UserError, match="no labelled row of begin is left"):
        evaluate(begin, tmp_path, f"checkpoint={trained}", tested)
