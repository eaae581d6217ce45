"""Public methods explain their keywords, and still show their signatures."""

import inspect

import pytest

from critic import Critic
from faithkit.arguments import add_question, explain_keywords
from faithkit.errors import UserError


@explain_keywords
def paint(wall: str, *, colour: str = "red") -> str:
    """Paints."""
    return f"{wall} {colour}"


def test_a_right_call_is_passed_on() -> None:
    assert paint("north", colour="blue") == "north blue"
    names = ["self", "knowledge", "response", "history", "threshold", "abstain_at"]
    assert list(inspect.signature(Critic.score).parameters) == names
    assert paint.__doc__ == "Paints."


@pytest.mark.parametrize(
    ("args", "keywords", "problem", "hint"),
    [
        ((), {}, "paint: missing a required argument: 'wall'", "it takes wall, colour"),
        (("a", "b"), {}, "paint: too many positional arguments", "it takes wall, colour"),
        (("a",), {"color": "b"}, "paint: there is no argument 'color'", "did you mean colour? it takes wall, colour"),
        (("a",), {"wall": "b"}, "paint: multiple values for argument 'wall'", "it takes wall, colour"),
    ],
)
def test_a_wrong_call_is_explained(args: tuple[str, ...], keywords: dict[str, str], problem: str, hint: str) -> None:
    with pytest.raises(UserError) as refused:
        paint(*args, **keywords)  # type: ignore[arg-type]
    assert (refused.value.problem, refused.value.hint) == (problem, hint)


@explain_keywords
def judge(knowledge: str, response: str) -> str:
    """Judges."""
    return f"{knowledge}: {response}"


def test_context_is_another_name_of_knowledge() -> None:
    assert judge(context="a", response="b") == judge("a", "b")  # type: ignore[call-arg]
    with pytest.raises(UserError, match="context and knowledge are two names of one argument"):
        judge(knowledge="a", context="a", response="b")  # type: ignore[call-arg]


def test_an_error_of_the_method_itself_is_not_taken_for_a_wrong_call() -> None:
    @explain_keywords
    def broken() -> int:
        return len(5)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="has no len"):
        broken()


@pytest.mark.parametrize(
    ("history", "question", "words"),
    [
        (None, 5, "question must be a text"),
        (5, "How long?", "history must be a list"),
        ([["Hello."]], ["How long?", "Why?"], "1 history and 2 question"),
        (["Hello."], [5], "question must be a text"),
    ],
)
def test_a_wrong_question_is_explained(history: object, question: object, words: str) -> None:
    with pytest.raises(UserError, match=words):
        add_question(history, question)
