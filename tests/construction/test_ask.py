"""Unusable replies are classified by their fault, and usable ones pass, whatever they say."""

import pytest

from construction.ask import CUT, MAX_MORE_WORDS, NO_EXPLANATION, TOO_MANY_WORDS, ReplyRules, cut_turns, read_induced

INSTRUCTION = "You are the assistant in a conversation that rests on given knowledge. Knowledge: {knowledge} Reply:"
RULES = ReplyRules(max_words=20, instruction=INSTRUCTION)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        *[("", "empty"), (" ... \n", "empty"), ("word " * 21, "over the limit")],
        ("I'm sorry, but I cannot answer this question.", "refusal"),
        ("I’m unable to provide that.", "refusal"),
        ("As an AI language model, I have no favourite river.", "refusal"),
        ("Unable to answer based on given passages.", "refusal"),
        ("The passages do not contain the necessary information.", "refusal"),
        ("You are the assistant in a conversation that rests on it.", "repeats the prompt"),
        ("What does the museum show?", "repeats the prompt"),
        ("Der Fluss ist sehr lang und er fließt durch das Land.", "other language"),
        ("La rivière est très longue et elle passe par dix pays.", "other language"),
        ("El río es muy largo y pasa por diez países de la región.", "other language"),
        *[("多瑙河流经十个国家", "other language"), ("Дунай протекает через десять стран", "other language")],
        ("I can't say that I have a favourite, but the Danube is long.", None),
        ("Sorry to hear that! It flows through ten countries.", None),
        ("An AI firm in Paris made it.", None),
        ("I love the works of Pérez de la Cruz and of Müller.", None),
        ("No, it was founded in 1871 in Den Haag, as far as I know.", None),
        *((text, None) for text in ("Yes.", "1871", "The museum shows what it has.", "Sushi.", "Zoë Kravitz")),
    ],
)
def test_unusable_replies_are_classified_and_usable_ones_left_alone(text: str, kind: str | None) -> None:
    assert RULES.fault(text, last_turn="What does the museum show?") == kind


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
    assert read_induced(text, "A reference.") == ((*found, None) if found else (text, "", NO_EXPLANATION))


@pytest.mark.parametrize(("more", "refused"), [(0, False), (MAX_MORE_WORDS, False), (MAX_MORE_WORDS + 1, True)])
def test_a_hallucination_may_have_six_words_more_than_its_reference(more: int, refused: bool) -> None:
    text = "other words here " + "more " * more + "\nExplanation: B."
    assert read_induced(text, "these words here")[2] == (TOO_MANY_WORDS if refused else None)
