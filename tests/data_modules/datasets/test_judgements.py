"""DiaHalu, HalluDial and HaluEval: dialogues and responses with judgements, whole and by round."""

from pathlib import Path
from typing import Any

import pytest

from faithkit.errors import UserError
from tests.data_modules.official.dialogues import APPRENTICE, WIZARD
from tests.data_modules.official.judgements import (
    DIAHALU,
    HALLUDIAL,
    HALUEVAL_DIALOGUE,
    HALUEVAL_GENERAL,
    HALUEVAL_QA,
    HALUEVAL_SUMMARIZATION,
    LAKE,
    TALK,
)
from tests.data_modules.official_rows import encode, labels, make, read, write

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
    assert (first.meta["model"], first.meta["rounds"]) == ("GPT4", 3)
    assert first.meta["turn_words"] == [4, 3, 3, 3, 1, 1]
    assert third.meta["types"] == ["incoherence", "irrelevance"]
    assert second.tags == () and not {"type", "places", "explanations"} & second.meta.keys()
    assert counts == {"kept": 4, "repaired: an explanation that is not JSON": 1}
    examples, counts = read(make("diahalu", write(tmp_path / "DiaHalu.jsonl", [{**ROW, "label": 0}])))
    assert examples[0].label == "faithful" and "places" not in examples[0].meta, "a place in it does not count"
    assert counts["index and label disagree, the label counts: faithful"] == 1


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
    asked = by_id["2:2"].history
    assert [turn.speaker for turn in asked] == ["seeker", "wizard", "seeker"]
    assert [turn.text for turn in asked] == ["Where is Lake Orvel?", "On a plateau.", "Is it deep?"]
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
    write(tmp_path / "DiaHalu_V2.jsonl", DIAHALU)
    with pytest.raises(UserError, match=r"several versions are here(.|\n)*set path to one file"):
        read(make("diahalu", tmp_path))


def halludial(folder: Path) -> Path:
    for scenario in ("spontaneous", "induced"):
        for split in ("train", "test"):
            write(folder / "data" / scenario / f"{scenario}_{split}.json", HALLUDIAL)
    return folder


def test_a_row_is_a_response_with_its_dialogue_and_its_judgement(tmp_path: Path) -> None:
    examples, counts = read(make("halludial", halludial(tmp_path), scenario="induced"))
    first, second, third = examples
    assert (first.label, second.label, third.label) == ("faithful", "hallucinated", "faithful")
    assert second.target == 'Yes. "full of trout" is not in the knowledge.' and first.target == "No."
    assert [turn.speaker for turn in first.history] == ["seeker", "wizard", "seeker"]
    assert [turn.text for turn in first.history] == ["Do you know any lakes?", "Lake Orvel.", "What is it like?"]
    assert first.meta == {"turn": 1, "scenario": "induced"}
    assert (first.group, third.group) == ("3", "5")
    assert [example.id for example in examples] == ["3:1", "3:1@induced_test:1", "5:1"]
    assert counts == {"kept": 3, "repeated id, made unique by its row": 1}


def test_both_scenarios_are_read_unless_one_is_chosen(tmp_path: Path) -> None:
    folder = halludial(tmp_path)
    both = read(make("halludial", folder))[0]
    assert len(both) == 6 and len({example.id for example in both}) == 6
    assert {example.meta["scenario"] for example in both} == {"spontaneous", "induced"}
    for path in (folder, folder / "data", folder / "data" / "spontaneous"):
        chosen = read(make("halludial", path, scenario="spontaneous"))[0]
        assert [example.meta["scenario"] for example in chosen] == ["spontaneous"] * 3
    anew = make("halludial", folder, official_split=False)
    assert anew.split_names() == ["all"] and labels(read(anew)[0]) == {"faithful": 8, "hallucinated": 4}
    with pytest.raises(UserError, match=r"no file of the induced scenario is here(.|\n)*scenario=both"):
        make("halludial", folder / "data" / "spontaneous", scenario="induced").files()


@pytest.mark.parametrize(
    ("target", "label"), [("Yes", "hallucinated"), ("no: fine", "faithful"), ("\nNo.", "faithful")]
)
def test_a_verdict_is_a_whole_word(tmp_path: Path, target: str, label: str) -> None:
    file = write(tmp_path / "induced_test.json", [{**HALLUDIAL[0], "target": target}])
    assert read(make("halludial", file))[0][0].label == label


def test_topics_are_those_of_wows_dialogues(tmp_path: Path) -> None:
    hills = {**HALLUDIAL[0], "dialogue_history": "[Human]: And hills?"}
    other = {**hills, "dialogue_id": 9, "knowledge": "Mount Sel is high."}
    unknown = {**hills, "dialogue_id": 11, "knowledge": "Nothing of it."}
    file = write(tmp_path / "spontaneous_test.json", [HALLUDIAL[0], other, unknown])
    openings = [("Lakes", "do you know any lakes ?", "A"), ("Hills", "Tell me.", "Mount Sel is high .")]
    openings += [("Bread", "And hills?", "B"), ("Games", "and hills?", "C")]  # two topics: it decides nothing
    dialogues = []
    for topic, opening, knowledge in openings:
        wizard = {**WIZARD, "text": "Indeed.", "checked_sentence": {"k": knowledge}}
        dialogues.append({"chosen_topic": topic, "dialog": [{**APPRENTICE, "text": opening}, wizard]})
    write(tmp_path / "wow" / "train.json", dialogues)
    source = make("halludial", file, topics_path=str(tmp_path / "wow"))
    examples, counts = read(source)
    assert [example.meta.get("topic") for example in examples] == ["Lakes", "Hills", None]
    assert counts == {"kept": 3, "rows without a topic in topics_path": 1}
    assert tmp_path / "wow" / "train.json" in source.files()["test"]  # the cache depends on it
    assert all("topic" not in example.meta for example in read(make("halludial", file))[0])


FILES = {"qa": HALUEVAL_QA, "dialogue": HALUEVAL_DIALOGUE}
FILES |= {"summarization": HALUEVAL_SUMMARIZATION, "general": HALUEVAL_GENERAL}


def halueval(folder: Path) -> Path:
    for name, rows in FILES.items():  # JSON lines, as the release has them
        (folder / f"{name}_data.json").write_text(encode(rows, ".jsonl"))
    return folder


def test_a_row_gives_its_right_and_its_hallucinated_response(tmp_path: Path) -> None:
    examples, _ = read(make("halueval", halueval(tmp_path), tasks="qa"))
    shown = [
        (f"qa_data:{n}:{name}", label)
        for n in (0, 1)
        for name, label in (("right", "faithful"), ("hallucinated", "hallucinated"))
    ]
    assert [(e.id, e.label) for e in examples] == shown
    right, wrong, *_ = examples
    assert (right.response, wrong.response) == ("Orvel", "The deepest lake of the plateau is Lake Tarn.")
    assert right.knowledge == LAKE and [turn.text for turn in right.history] == ["Which lake is deep?"]
    assert right.meta == wrong.meta == {"task": "qa", "pair": "qa_data:0"}
    assert right.reference == wrong.reference == "Orvel"
    assert len({example.group for example in examples}) == 1  # one text of knowledge
    examples, _ = read(make("halueval", tmp_path, tasks=["dialogue", "summarization"]))
    dialogue, document = examples[0], examples[2]
    assert [turn.speaker for turn in dialogue.history] == ["seeker", "wizard", "seeker"]
    assert (document.knowledge, document.history) == (LAKE, ())
    assert [example.meta["task"] for example in examples] == ["dialogue"] * 2 + ["summarization"] * 2


def test_general_spans_are_kept_where_all_of_them_are_found(tmp_path: Path) -> None:
    examples, counts = read(make("halueval", halueval(tmp_path), tasks="general"))
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
    folder = halueval(tmp_path)
    (folder / "qa_data.json").write_text(encode(HALUEVAL_QA * 50, ".jsonl"))
    ones = read(make("halueval", folder, pairs="one", tasks="qa"))[0]
    assert len(ones) == 100 and 30 < labels(ones)["hallucinated"] < 70
    assert {e.id for e in ones} <= {e.id for e in read(make("halueval", folder))[0]}
    assert read(make("halueval", folder / "qa_data.json", pairs="one"))[0] == ones
    assert read(make("halueval", folder, pairs="one", tasks="qa", seed=1))[0] != ones


def test_the_official_choice(tmp_path: Path) -> None:
    folder = halueval(tmp_path)
    examples, counts = read(make("halueval", folder, official=True))
    ones = read(make("halueval", folder, pairs="one", knowledge=False, tasks=["qa", "dialogue", "summarization"]))[0]
    assert examples == ones and len(examples) == 4
    assert {e.meta["task"]: e.knowledge for e in examples} == {"qa": "", "dialogue": "", "summarization": LAKE}
    assert counts["dropped: general, which the official run does not judge"] == 5
