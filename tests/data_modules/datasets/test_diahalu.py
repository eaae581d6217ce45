"""DiaHalu's dialogues, whole and by round, and the faults of its annotations."""

from pathlib import Path
from typing import Any

import pytest

from faithkit.errors import UserError
from tests.data_modules.official.judgements import DIAHALU, TALK
from tests.data_modules.official_rows import make, read, write

ROW = DIAHALU[0]
NO_JSON, NO_TURN = "repaired: an index that is not JSON", "repaired: a place without such a turn, left out"


def test_a_dialogue_is_judged_as_a_whole(tmp_path: Path) -> None:
    examples, counts = read(make("diahalu", write(tmp_path / "DiaHalu.jsonl", DIAHALU)))
    first, second, third, _ = examples
    assert (first.id, first.group, first.response, first.knowledge, first.history) == ("2", "2", TALK, "", ())
    assert [e.label for e in examples] == ["hallucinated", "faithful", "hallucinated", "hallucinated"]
    assert [e.meta["domain"] for e in examples] == ["knowledge", "task", "chit-chat", "reasoning"]
    assert first.tags == ("non-factual",) and first.meta["type"] == "non-factual"
    assert first.meta["places"] == [[2, "non-factual"]] and first.meta["explanations"] == ["it is deep"]
    assert (
        first.meta["model"] == "GPT4" and first.meta["rounds"] == 3 and first.meta["turn_words"] == [4, 3, 3, 3, 1, 1]
    )
    assert third.meta["types"] == ["incoherence", "irrelevance"]
    assert second.tags == () and not {"type", "places", "explanations"} & second.meta.keys()
    assert counts == {"kept": 4, "repaired: an explanation that is not JSON": 1}


def test_every_round_by_itself(tmp_path: Path) -> None:
    source = make("diahalu", write(tmp_path / "DiaHalu.jsonl", DIAHALU), level="turn")
    examples, counts = read(source)
    shown = {e.id: (e.response, e.label) for e in examples}
    assert shown["2:1"] == ("On a plateau.", "faithful")  # B alone was judged
    assert shown["2:2"] == ("It is\nshallow.", "hallucinated")
    assert shown["2:3"] == ("Welcome.", None)  # rounds after the first hallucination were not judged
    assert [shown[f"4:{number}"][1] for number in (1, 2, 3)] == ["faithful"] * 3
    assert shown["7:1"] == ("A1: Where is Lake Orvel?\nB1: On a plateau.", "hallucinated")  # both were judged
    assert shown["7:2"][1] is None and shown["7:3"][1] == "hallucinated"
    by_id = {e.id: e for e in examples}
    assert [(turn.speaker, turn.text) for turn in by_id["2:2"].history] == [
        ("seeker", "Where is Lake Orvel?"),
        ("wizard", "On a plateau."),
        ("seeker", "Is it deep?"),
    ]
    assert by_id["7:1"].history == () and len(by_id["7:3"].history) == 4
    assert {e.group for e in examples} == {"2", "4", "7", "9"}
    assert counts["rounds without a label"] == 3


@pytest.mark.parametrize(
    ("index", "places", "count"),
    [
        ('[[2,"Non-factual"]]', [[2, "non-factual"]], None),
        ('[[2,"nonfactual"]]', [[2, "non-factual"]], "repaired: a misspelt type"),
        ('[[2,"Inchoerence"]]', [[2, "incoherence"]], "repaired: a misspelt type"),
        ('[[2,"reasoning_error"]]', [[2, "reasoning error"]], "repaired: a misspelt type"),
        ('[2,"Irrelevance"]', [[2, "irrelevance"]], "repaired: an index of one place, not in a list"),
        ('[["B2","Irrelevance"]]', [[2, "irrelevance"]], "repaired: a turn's number given as text"),
        ("[[2,'Irrelevance'],[3,'Overreliance']]", [[2, "irrelevance"], [3, "overreliance"]], NO_JSON),
        ("[[2,Irrelevance]", [[2, "irrelevance"]], NO_JSON),
        ([[2, "Irrelevance"]], [[2, "irrelevance"]], None),
        ('[[2,"Irrelevance"],[9,"Incoherence"]]', [[2, "irrelevance"]], NO_TURN),
        ("[]", None, "index and label disagree, the label counts: hallucinated"),
        (None, None, "index and label disagree, the label counts: hallucinated"),
    ],
)  # fmt: skip
def test_faults_of_the_index_are_mended_and_counted(tmp_path: Path, index: Any, places: Any, count: str | None) -> None:
    file = write(tmp_path / "DiaHalu.jsonl", [{**ROW, "index": index}])
    examples, counts = read(make("diahalu", file))
    assert examples[0].meta.get("places") == places and examples[0].label == "hallucinated"
    assert counts == {"kept": 1} | ({count: 1} if count else {})


def test_a_place_in_a_dialogue_that_is_right_does_not_count(tmp_path: Path) -> None:
    examples, counts = read(make("diahalu", write(tmp_path / "DiaHalu.jsonl", [{**ROW, "label": 0}])))
    assert examples[0].label == "faithful" and "places" not in examples[0].meta
    assert counts["index and label disagree, the label counts: faithful"] == 1


def test_labels_of_a_model_are_read_only_where_they_are_asked_for(tmp_path: Path) -> None:
    by_model = {"model_label": 1, "model_index": "[]", "model_explaination": '["too deep"]', "labelled_by": "model m"}
    mine = {**ROW, "label": "", "index": "[]", "explaination": "[]"}
    file = write(tmp_path / "DiaHalu.jsonl", [{**mine, **by_model}, {**mine, "ID": 5}])
    examples, counts = read(make("diahalu", file))
    assert [e.label for e in examples] == [None, None] and counts["dialogues without a label"] == 2
    assert not any("labelled_by" in e.meta for e in examples)
    examples, counts = read(make("diahalu", file, labelled_by="model"))
    assert [(e.label, e.meta.get("labelled_by")) for e in examples] == [("hallucinated", "model m"), (None, None)]
    assert counts == {"kept": 2, "dialogues labelled by a model": 1, "dialogues without a label": 1}
    assert make("diahalu", file).layout() != make("diahalu", file, labelled_by="model").layout()


def test_turns_stand_as_the_text_has_them(tmp_path: Path) -> None:
    text = "A1: Hi\nB1: Hello\nA2: Well?\nA3: Anyone?\nB3: Yes."
    file = write(tmp_path / "DiaHalu.jsonl", [{**ROW, "text": text, "index": '[[3,"Irrelevance"]]'}])
    (first, last), counts = read(make("diahalu", file, level="turn"))
    assert (first.id, first.response, first.label) == ("2:1", "Hello", "faithful")
    assert (last.id, last.response, last.label) == ("2:3", "Yes.", "hallucinated")
    assert [turn.text for turn in last.history] == ["Hi", "Hello", "Well?", "Anyone?"]
    assert counts["turns missing, repeated or out of order: kept as they are"] == 1
    assert counts["rounds without a judged turn"] == 1


def test_domains_can_be_chosen_and_two_versions_are_not_mixed(tmp_path: Path) -> None:
    file = write(tmp_path / "DiaHalu_V1.jsonl", DIAHALU)
    examples, counts = read(make("diahalu", file, domains=["task", "reasoning"]))
    assert [e.id for e in examples] == ["4", "9"] and counts["dropped: domain knowledge"] == 1
    with pytest.raises(UserError, match="hint: use all, knowledge, task"):
        make("diahalu", file, domains="sports")
    write(tmp_path / "DiaHalu_V2.jsonl", DIAHALU)
    with pytest.raises(UserError, match=r"several versions are here(.|\n)*set path to one file"):
        read(make("diahalu", tmp_path))
