"""Knowledge of a test set never trains: however it is tokenised, and through every way that leads into training."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data_modules.build import build_mix, build_source, read_excluded
from data_modules.reading.dataset import read_examples
from data_modules.reading.exclude import DROPPED, DROPPED_DIALOGUE, MIN_WORDS, Excluded, count_words
from data_modules.reading.rows import ReadReport
from faithkit.errors import UserError
from faithkit.records import Turn
from tests.data_modules.examples import example

HEADER = ["model_name", "data_source", "knowledge", "message", "response", "begin_label"]


@pytest.fixture
def begin(tmp_path: Path) -> Path:
    rows = [
        ["t5", "wow", "The river is long .", "Hi", "It is long.", "Fully attributable"],
        ["t5", "wow", "The café's old.", "Hi", "Nice!", "Generic"],
    ]
    file = tmp_path / "begin_test_wow.tsv"
    file.write_text("\n".join("\t".join(row) for row in [HEADER, *rows]))
    return file


@pytest.fixture
def snli(tmp_path: Path) -> Path:
    premises = ["the river is LONG", "The cafe's old!", "A hill is high."]
    rows = [
        {"gold_label": "entailment", "sentence1": premise, "sentence2": "yes", "pairID": f"p{i}"}
        for i, premise in enumerate(premises)
    ]
    file = tmp_path / "snli_1.0_train.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


def test_what_was_cut_is_known_by_its_whole(begin: Path) -> None:
    excluded = Excluded.of([example(knowledge="One. Two.")])
    assert excluded.covers(example(knowledge="Two.", meta={"whole_knowledge": "One . Two ."}))
    assert not excluded.covers(example(knowledge="Two."))


def test_rows_that_are_not_scored_are_excluded_too(begin: Path) -> None:
    keys = read_excluded([{"dataset": "begin", "path": str(begin), "split": "test"}]).keys
    assert keys == {"theriverislong", "thecafesold"}


def test_training_records_are_dropped_and_counted(begin: Path, snli: Path) -> None:
    parts: list[dict[str, Any]] = [{"dataset": "snli", "path": str(snli)}]
    source = build_mix(parts, [{"dataset": "begin", "path": str(begin), "split": "test"}])[0].source
    report = ReadReport()
    assert [e.knowledge for e in read_examples(source, "train", report)] == ["A hill is high."]
    assert report.counts[DROPPED] == 2
    untouched = build_mix(parts)[0].source
    assert source.layout() != untouched.layout(), "the cache key must differ"


def test_a_part_that_only_tests_keeps_its_rows(begin: Path) -> None:
    parts = [{"dataset": "begin", "path": str(begin), "only": "test"}]
    source = build_mix(parts, [{"dataset": "begin", "path": str(begin), "split": "test"}])[0].source
    assert len(list(read_examples(source, "test", ReadReport()))) == 1


def test_a_generated_corpus_cannot_be_excluded_from(begin: Path) -> None:
    with pytest.raises(UserError, match="does not apply to embedded"):
        build_mix([{"dataset": "embedded"}], [{"dataset": "begin", "path": str(begin), "split": "test"}])
    assert build_source("embedded").name == "embedded"


def test_a_dialogue_of_a_test_set_is_known_by_what_was_said_whatever_its_id() -> None:
    utterance = "I went to the old river twice last year."
    tested = example(
        knowledge="The river is long.",
        response="Did you swim in it on that day?",
        history=(Turn(speaker="a", text=utterance),),
    )
    excluded = Excluded.of([tested])
    # Another turn of the same dialogue: other knowledge and other ids; the words are tokenised as another corpus does.
    later = example(
        id="x", group="7", knowledge="Boats.", history=(Turn(speaker="b", text=utterance.replace(".", " .")),)
    )
    answered = example(id="y", knowledge="Boats.", response="Did you swim in it on that day ?")
    assert excluded.reason(later) == excluded.reason(answered) == DROPPED_DIALOGUE
    assert excluded.reason(replace(tested, response="No.", history=())) == DROPPED
    # The same number in another split is another dialogue, and short utterances occur in many.
    other = example(id="z", group=tested.group, knowledge="Boats.", history=(Turn(speaker="a", text="Hello there!"),))
    greeted = Excluded.of([replace(tested, history=(Turn(speaker="a", text="Hello there!"),))])
    assert excluded.reason(other) is None and greeted.reason(other) is None
    assert excluded.digest != Excluded(excluded.keys).digest, "the cache key must differ"


@pytest.mark.parametrize(
    ("long", "short"),
    [
        ("你知道长城是什么时候修建的吗？我很想去看看它。", "是的，我也很喜欢那个！"),
        ("万里の長城はいつ建てられたか知っていますか？", "はい、そうですね。"),
        ("ฉันอยากไปเที่ยวกำแพงเมืองจีนในปีหน้ากับครอบครัว", "สวัสดีครับ"),
        ("ខ្ញុំចង់ទៅលេងប្រាសាទអង្គរវត្តនៅឆ្នាំក្រោយជាមួយគ្រួសារ", "សួស្តី"),
        ("만리장성은 언제 지어졌는지 혹시 알고 있나요?", "네, 저도 그것을 좋아해요!"),
        ("Ты знаешь, когда была построена Великая стена?", "Да, мне она тоже нравится!"),
    ],
)
def test_a_dialogue_is_known_by_long_utterances_in_scripts_without_spaces_too(long: str, short: str) -> None:
    assert count_words(long) >= MIN_WORDS > count_words(short)
    for utterance, reason in ((long, DROPPED_DIALOGUE), (short, None)):
        tested = example(knowledge="A wall.", response="No.", history=(Turn(speaker="a", text=utterance),))
        later = example(id="x", knowledge="Boats.", response="No.", history=(Turn(speaker="b", text=f"{utterance} "),))
        assert Excluded.of([tested]).reason(later) == reason
