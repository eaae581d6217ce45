"""BEGIN's classes and VRM's speech acts, as the files of FaithDial and its audit spell them."""

import pytest

from faithkit_workflows.corpus.corpus_rows import ACTS, begin_class, speech_acts


@pytest.mark.parametrize(
    ("tags", "name"),
    [
        (("Hallucination",), "hallucination"),
        (("Hallucination", "Entailment"), "partial hallucination"),
        (("partial hallucination",), "partial hallucination"),
        (("entailment", "uncooperative"), "uncooperative"),
        (("uncooperative",), "uncooperative"),
        (("Entailment",), "entailment"),
        (("Generic",), "generic"),
        (("generic", "hallucination"), "hallucination"),
        (("Evident Conflict",), None),
        ((), None),
    ],
)
def test_a_response_has_one_class(tags: tuple[str, ...], name: str | None) -> None:
    assert begin_class(tags) == name


@pytest.mark.parametrize(
    ("spelt", "acts"),
    [
        (["edificaiton", "ack."], ["edification", "acknowledgment"]),
        (["disclsoure", "dislcosure"], ["disclosure"]),
        (["acknowledgment. disclosure"], ["acknowledgment", "disclosure"]),
        (["advice"], ["advisement"]),
        (["e", "d", "i", "f"], []),  # a word that a file has letter by letter
        (None, []),
        ("Question", ["question"]),
    ],
)
def test_speech_acts_are_read_through_misspellings(spelt: object, acts: list[str]) -> None:
    assert speech_acts(spelt) == acts


def test_each_act_is_itself() -> None:
    assert speech_acts(list(ACTS)) == list(ACTS)
