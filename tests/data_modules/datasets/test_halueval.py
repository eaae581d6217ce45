"""HaluEval's four files: pairs of responses, and general ones with the texts that are wrong in them."""

from pathlib import Path

from tests.data_modules.official.judgements import (
    HALUEVAL_DIALOGUE,
    HALUEVAL_GENERAL,
    HALUEVAL_QA,
    HALUEVAL_SUMMARIZATION,
    LAKE,
)
from tests.data_modules.official_rows import encode, labels, make, read

FILES = {"qa": HALUEVAL_QA, "dialogue": HALUEVAL_DIALOGUE}
FILES |= {"summarization": HALUEVAL_SUMMARIZATION, "general": HALUEVAL_GENERAL}


def corpus(folder: Path) -> Path:
    for name, rows in FILES.items():  # JSON lines, as the release has them
        (folder / f"{name}_data.json").write_text(encode(rows, ".jsonl"))
    return folder


def test_a_row_gives_its_right_and_its_hallucinated_response(tmp_path: Path) -> None:
    examples, _ = read(make("halueval", corpus(tmp_path), tasks="qa"))
    assert [(e.id, e.label) for e in examples] == [
        ("qa_data:0:right", "faithful"),
        ("qa_data:0:hallucinated", "hallucinated"),
        ("qa_data:1:right", "faithful"),
        ("qa_data:1:hallucinated", "hallucinated"),
    ]
    right, wrong, *_ = examples
    assert (right.response, wrong.response) == ("Orvel", "The deepest lake of the plateau is Lake Tarn.")
    assert right.knowledge == LAKE and [turn.text for turn in right.history] == ["Which lake is deep?"]
    assert right.meta == wrong.meta == {"task": "qa", "pair": "qa_data:0"}
    assert right.reference == wrong.reference == "Orvel"
    assert len({example.group for example in examples}) == 1  # one text of knowledge


def test_dialogues_and_documents(tmp_path: Path) -> None:
    examples, _ = read(make("halueval", corpus(tmp_path), tasks=["dialogue", "summarization"]))
    dialogue, document = examples[0], examples[2]
    assert [turn.speaker for turn in dialogue.history] == ["seeker", "wizard", "seeker"]
    assert (document.knowledge, document.history) == (LAKE, ())
    assert [example.meta["task"] for example in examples] == ["dialogue"] * 2 + ["summarization"] * 2


def test_general_spans_are_kept_where_all_of_them_are_found(tmp_path: Path) -> None:
    examples, counts = read(make("halueval", corpus(tmp_path), tasks="general"))
    shown = [None if e.spans is None else [e.response[s.start : s.end] for s in e.spans] for e in examples]
    assert shown == [[], ["Mount Sel"], ["the sea"], None, None]
    assert examples[2].spans and examples[2].spans[0].start == len("Lake Orvel, ")
    assert [e.id for e in examples] == [f"general_data:{number}" for number in range(5)]
    assert [turn.text for turn in examples[0].history] == ["Name a lake."] and examples[0].knowledge == ""
    spans = {"located": 3, "of several places, the first taken": 1, "not in the response": 1}
    spans |= {"none named in a hallucinated response": 1}
    dropped = {"dropped: qa": 2, "dropped: dialogue": 1, "dropped: summarization": 1, "kept": 5}
    assert counts == dropped | {f"spans: {name}": count for name, count in spans.items()}


def test_a_coin_chooses_one_response_of_each_row_the_same_whatever_else_is_read(tmp_path: Path) -> None:
    folder = corpus(tmp_path)
    (folder / "qa_data.json").write_text(encode(HALUEVAL_QA * 50, ".jsonl"))
    ones = read(make("halueval", folder, pairs="one", tasks="qa"))[0]
    assert len(ones) == 100 and 30 < labels(ones)["hallucinated"] < 70
    assert {e.id for e in ones} <= {e.id for e in read(make("halueval", folder))[0]}
    assert read(make("halueval", folder / "qa_data.json", pairs="one"))[0] == ones
    assert read(make("halueval", folder, pairs="one", tasks="qa", seed=1))[0] != ones


def test_the_official_choice(tmp_path: Path) -> None:
    folder = corpus(tmp_path)
    examples, counts = read(make("halueval", folder, official=True))
    ones = read(make("halueval", folder, pairs="one", knowledge=False, tasks=["qa", "dialogue", "summarization"]))[0]
    assert examples == ones and len(examples) == 4
    assert {e.meta["task"]: e.knowledge for e in examples} == {"qa": "", "dialogue": "", "summarization": LAKE}
    assert counts["dropped: general, which the official run does not judge"] == 5
