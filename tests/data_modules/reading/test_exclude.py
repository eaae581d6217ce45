"""Knowledge of a test set never trains: however it is tokenised, and through every way that leads into training."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from data_modules.build import build_mix, read_excluded
from data_modules.reading.dataset import read_examples
from data_modules.reading.exclude import DROPPED, DROPPED_DIALOGUE, MIN_WORDS, Excluded, count_words
from data_modules.reading.rows import ReadReport
from faithkit.errors import UserError
from faithkit.records import Turn
from tests.data_modules.conftest import write_snli
from tests.data_modules.examples import example
from tests.data_modules.official.judged import BEGIN
from tests.data_modules.official_rows import write


@pytest.fixture
def begin(tmp_path: Path) -> Path:
    scored, generic = BEGIN[0], BEGIN[3]
    rows = [{**scored, "knowledge": "The river is long ."}, {**generic, "knowledge": "The café's old."}]
    return write(tmp_path / "begin_test_wow.tsv", rows)


@pytest.fixture
def snli(tmp_path: Path) -> Path:
    premises = ["the river is LONG", "The cafe's old!", "A hill is high."]
    return write_snli(tmp_path, *((premise, "yes", "entailment") for premise in premises))


def test_what_was_cut_is_known_by_its_whole() -> None:
    excluded = Excluded.of([example(knowledge="One. Two.")])
    assert excluded.covers(example(knowledge="Two.", meta={"whole_knowledge": "One . Two ."}))
    assert not excluded.covers(example(knowledge="Two."))


def test_training_records_are_dropped_and_counted(begin: Path, snli: Path) -> None:
    tested = [{"dataset": "begin", "path": str(begin), "split": "test"}]
    keys = read_excluded(tested).keys
    assert keys == {"theriverislong", "thecafesold"}, "rows that are not scored too"
    parts = [{"dataset": "snli", "path": str(snli)}, {"dataset": "begin", "path": str(begin), "only": "test"}]
    source, own = (part.source for part in build_mix(parts, tested))
    report = ReadReport()
    assert [e.knowledge for e in read_examples(source, "train", report)] == ["A hill is high."]
    assert report.counts[DROPPED] == 2
    assert source.layout() != build_mix(parts)[0].source.layout(), "the cache key must differ"
    assert len(list(read_examples(own, "test", ReadReport()))) == 1, "a part that only tests keeps its rows"
    with pytest.raises(UserError, match="does not apply to embedded"):
        build_mix([{"dataset": "embedded"}], tested)


def asked(text: str, **values: Any) -> Any:
    return example(knowledge="Boats.", history=(Turn(speaker="b", text=text),), **values)


def test_a_dialogue_of_a_test_set_is_known_by_what_was_said_whatever_its_id() -> None:
    utterance, said = "I went to the old river twice last year.", "Did you swim in it on that day?"
    tested = replace(asked(utterance, response=said), knowledge="The river is long.")
    excluded = Excluded.of([tested])
    # Another turn of the same dialogue: other knowledge and other ids; the words are tokenised as another corpus does.
    later = asked(utterance.replace(".", " ."), id="x", group="7")
    answered = example(id="y", knowledge="Boats.", response=said.replace("?", " ?"))
    assert excluded.reason(later) == excluded.reason(answered) == DROPPED_DIALOGUE
    assert excluded.reason(replace(tested, response="No.", history=())) == DROPPED
    # The same number in another split is another dialogue, and short utterances occur in many.
    other = asked("Hello there!", id="z", group=tested.group)
    assert excluded.reason(other) is None
    assert Excluded.of([replace(tested, history=other.history)]).reason(other) is None
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
    for text, reason in ((long, DROPPED_DIALOGUE), (short, None)):
        tested = replace(asked(text, response="No."), knowledge="A wall.")
        assert Excluded.of([tested]).reason(asked(f"{text} ", response="No.")) == reason
