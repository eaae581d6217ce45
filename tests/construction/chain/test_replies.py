"""Unusable replies are classified by their fault, and usable ones pass, whatever they say."""

import pytest

from construction.chain.replies import (
    CUT,
    ECHO,
    EMPTY,
    LANGUAGE,
    MAX_MORE_WORDS,
    REFUSAL,
    TOO_LONG,
    ReplyRules,
    cut_turns,
    find_induced_fault,
    read_induced,
)

INSTRUCTION = "You are the assistant in a conversation that rests on given knowledge. Knowledge: {knowledge} Reply:"
RULES = ReplyRules(max_words=20, instruction=INSTRUCTION)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", EMPTY),
        (" ... \n", EMPTY),
        ("I'm sorry, but I cannot answer this question.", REFUSAL),
        ("I’m unable to provide that.", REFUSAL),
        ("As an AI language model, I have no favourite river.", REFUSAL),
        ("Unable to answer based on given passages.", REFUSAL),
        ("The passages do not contain the necessary information.", REFUSAL),
        ("You are the assistant in a conversation that rests on it.", ECHO),
        ("What does the museum show?", ECHO),
        ("Der Fluss ist sehr lang und er fließt durch das Land.", LANGUAGE),
        ("La rivière est très longue et elle passe par dix pays.", LANGUAGE),
        ("El río es muy largo y pasa por diez países de la región.", LANGUAGE),
        ("多瑙河流经十个国家", LANGUAGE),
        ("Дунай протекает через десять стран", LANGUAGE),
        ("word " * 21, TOO_LONG),
    ],
)
def test_unusable_replies_are_classified(text: str, kind: str) -> None:
    assert RULES.fault(text, last_turn="What does the museum show?") == kind


@pytest.mark.parametrize(
    "text",
    [
        "I can't say that I have a favourite, but the Danube is long.",
        "Sorry to hear that! It flows through ten countries.",
        "Yes.",
        "1871",
        "An AI firm in Paris made it.",
        "I love the works of Pérez de la Cruz and of Müller.",
        "The museum shows what it has.",
        "Sushi.",
        "Zoë Kravitz",
        "No, it was founded in 1871 in Den Haag, as far as I know.",
    ],
)
def test_usable_replies_are_left_alone(text: str) -> None:
    assert RULES.fault(text, last_turn="What does the museum show?") is None


def test_a_reply_that_the_model_did_not_end_is_cut_off_and_any_language_may_be_asked_for() -> None:
    assert RULES.fault("It flows through", finished=False) == CUT
    assert ReplyRules(language=None).fault("Der Fluss ist sehr lang und er fließt durch das Land.") is None
    assert ReplyRules().fault("word " * 1000) is None


def test_further_turns_are_cut_and_a_leading_mark_is_taken_off() -> None:
    assert cut_turns("[Assistant]: It is long. [Human]: And then?") == ("It is long.", True)
    assert cut_turns("[assistant] : It is long.") == ("It is long.", False)
    assert cut_turns("[Human]: [Human]: x") == ("", True)
    assert cut_turns("It is long.\n\n[Human]") == ("It is long.", True)
    assert cut_turns("[Assistant] Write [Human] first.") == ("Write [Human] first.", False)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A.\n\nExplanation:\nB.", ("A.", "B.")),
        ("Hallucinated reply: A.\n**Explanation:** B.", ("A.", "B.")),
        ("A.\nHallucination Explanation: B.\n\nExample 4\n\nKnowledge:\nC", ("A.", "B.")),
        ("A.\nExplanation:", None),
        ("Explanation: B.", None),
        ("A. The explanation is B.", None),
        ("", None),
    ],
)
def test_a_hallucination_is_read_with_its_explanation(text: str, found: tuple[str, str] | None) -> None:
    assert read_induced(text) == found


@pytest.mark.parametrize(("more", "refused"), [(0, False), (MAX_MORE_WORDS, False), (MAX_MORE_WORDS + 1, True)])
def test_a_hallucination_may_have_six_words_more_than_its_reference(more: int, refused: bool) -> None:
    fault = find_induced_fault("other words here " + "more " * more, "these words here")
    assert (fault is not None) == refused
