"""The turns of a dialogue are tagged, each with those before it."""

import pytest

from critic import Tagger
from faithkit.errors import UserError
from tests.critic.tagger.answers import ANSWER, CONTEXT, QUESTION, assert_same


def test_a_dialogue_is_tagged_turn_by_turn(tagger: Tagger) -> None:
    turns = [("user", QUESTION[0]), ("Assistant", ANSWER[0]), ("user", "and who else"), ("assistant", ANSWER[3])]
    tagged = tagger.predict_dialogue(CONTEXT[1], turns)
    assert [place for place, one in enumerate(tagged) if one is not None] == [1, 3]
    assert tagged[1] is not None and tagged[3] is not None
    assert_same(tagged[1], tagger.predict(context=CONTEXT[1], question=QUESTION[0], answer=ANSWER[0]))
    before = "\n".join([QUESTION[0], ANSWER[0], "and who else"])
    assert_same(tagged[3], tagger.predict(context=CONTEXT[1], question=before, answer=ANSWER[3]))


@pytest.mark.parametrize(
    ("turns", "words"),
    [
        ([], "turns has no turn of the assistant"),
        ([("user", "hello"), ("me", "hi")], "speakers: me, user"),
        ([("assistant", " ")], "turns must be text"),
    ],
)
def test_a_dialogue_that_cannot_be_tagged_is_explained(
    tagger: Tagger, turns: list[tuple[str, str]], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        tagger.predict_dialogue("a context", turns)
