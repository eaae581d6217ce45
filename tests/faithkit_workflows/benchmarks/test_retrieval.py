"""Examples without knowledge get passages of a user's folder, and are judged by them."""

import json
from math import log
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.embedded.layouts import written_layout
from faithkit.errors import UserError
from faithkit.records import Turn
from faithkit_workflows.answering.retrieval import MAX_WORDS, Bm25, read_passages, retrieve, split_passages
from tests.data_modules.examples import example
from tests.running import evaluate_here


def write(folder: Path, **texts: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name.replace("_", ".")).write_text(text, encoding="utf-8")
    return folder


def test_a_passage_is_a_paragraph_and_a_long_one_is_divided_behind_sentences(tmp_path: Path) -> None:
    long = " ".join(f"Sentence {i} has exactly six words." for i in range(60))
    write(tmp_path / "in", b_txt=f"One\nline.\r\n\r\n{long}\n\n\n")
    write(tmp_path, a_md="First.", c_csv="no document")
    found = read_passages(str(tmp_path))
    assert found[:2] == ["First.", "One line."] and " ".join(found[2:]) == long
    assert all(len(passage.split()) <= MAX_WORDS for passage in found) and len(found) == 5
    assert read_passages(str(tmp_path / "a.md")) == ["First."]


@given(st.text(max_size=400))
def test_no_word_of_a_document_is_lost(text: str) -> None:
    assert " ".join(split_passages(text)).split() == text.split()


def test_only_examples_without_knowledge_get_what_is_found_by_last_turn_and_response(tmp_path: Path) -> None:
    texts = ["The Danube flows through ten countries.", "The Rhine ends in the sea.", "Cats sleep."]
    write(tmp_path, a_txt="\n\n".join(texts))
    asked = (Turn(speaker="seeker", text="Cats?"), Turn(speaker="seeker", text="What of the Rhine?"))
    rows = [
        example(knowledge="", response="Ten countries.", history=asked),
        example(knowledge="known", response="Cats."),
        example(knowledge=" ", response="Penguins"),
    ]
    found, summary = retrieve({"retrieval": {"path": str(tmp_path), "num_passages": 3}}, rows) or ([], {})
    assert (summary["examples_found"], summary["examples_without_knowledge"]) == (1, 2)
    assert found[0].knowledge == "The Danube flows through ten countries.\n\nThe Rhine ends in the sea."
    assert found[1:] == rows[1:]


def test_dialogues_are_judged_by_what_is_retrieved(language_models: dict[str, Path], tmp_path: Path) -> None:
    path, model = written_layout("diahalu", {"test": 12}), language_models["llama"]
    documents = write(tmp_path / "texts", a_txt="Museums close on Mondays.\n\nIt is a long river.")
    options = ["benchmark=diahalu", f"benchmark.path={path}", "engine=transformers", f"engine.model={model}"]
    options += ["engine.cache=null", "num_examples=0", "benchmark.num_rows=8"]
    evaluate_here(*options, f"run_dir={tmp_path / 'bare'}")
    evaluate_here(*options, f"retrieval.path={documents}", f"run_dir={tmp_path / 'read'}")
    told = json.loads((tmp_path / "read/metrics.json").read_text())["meta"]["data"]["retrieval"]
    assert told["passages"] == 2 and told["examples_without_knowledge"] == 8 and told["examples_found"] > 0
    bare, read = (
        [json.loads(line)["score"] for line in (tmp_path / run / "predictions/diahalu.jsonl").read_text().splitlines()]
        for run in ("bare", "read")
    )
    assert bare != read


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: None, "no such folder"),
        (lambda folder: folder.mkdir(), r"no texts are here\n.*\n.*name a folder with .txt or .md files"),
        (lambda folder: write(folder, a_txt=" \n\n "), "the texts are empty"),
        (lambda folder: (write(folder) / "a.txt").write_bytes(b"\xff\xfe\xff"), "not UTF-8 text"),
    ],
    ids=["none", "empty", "blank", "bytes"],
)
def test_a_folder_without_texts_is_refused(make: object, message: str, tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    make(folder)  # type: ignore[operator]
    with pytest.raises(UserError, match=message):
        read_passages(str(folder))


def test_scores_are_those_of_the_formula() -> None:
    index = Bm25(["red red fox", "blue fox", "a long blue river bank"])  # 3, 2 and 5 words, 10/3 on average
    red = log(1 + 2.5 / 1.5) * 2 * 2.5 / (2 + 1.5 * (0.25 + 0.75 * 3 / (10 / 3)))
    fox = log(1 + 1.5 / 2.5) * 2.5 / (1 + 1.5 * (0.25 + 0.75 * 3 / (10 / 3)))
    other_fox = log(1 + 1.5 / 2.5) * 2.5 / (1 + 1.5 * (0.25 + 0.75 * 2 / (10 / 3)))
    assert index.scores("Red fox! Red?").tolist() == pytest.approx([red + fox, other_fox, 0.0])
    plain = Bm25(["red red fox", "blue fox"], k1=0.0, b=0.0)
    assert plain.scores("red").tolist() == pytest.approx([log(1 + 1.5 / 1.5), 0.0]), "without k1 a word counts once"


def test_the_best_come_first_and_those_without_a_word_never() -> None:
    index = Bm25(["The Danube is long.", "A cat sleeps.", "Is it long?", "Is it long?"])
    assert index.best("How long is the Danube?", 9) == ["The Danube is long.", "Is it long?", "Is it long?"]
    assert index.best("How long is the Danube?", 1) == ["The Danube is long."]
    assert index.best("penguins", 3) == [] and index.best("", 3) == [] and Bm25([]).best("red", 3) == []
    assert Bm25(["?!", ""]).best("red", 3) == []
