"""Evidence points into the context that was given, whatever the texts are."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit import check
from faithkit.evidence import CLOSEST, NOTHING, add_evidence, describe_mark
from faithkit.records import HALLUCINATED, UNTYPED, Evidence, Example, Prediction, Span

PASSAGES = ["Hello. The warranty lasts 24 months.", "A battery is included."]
TEXTS = st.text(st.characters(exclude_categories=()) | st.sampled_from(list("ab .!?\n。é")), max_size=60)
EVIDENCE = st.builds(Evidence, text=TEXTS, start=st.integers(0, 9), end=st.integers(0, 9), passage=st.integers(0, 5))


def complete(response: str, part: str, evidence: Evidence | None = None) -> Span:
    start = response.index(part)
    span = Span(start=start, end=start + len(part), label=UNTYPED, score=0.9, evidence=evidence)
    [found] = add_evidence(Prediction(id="0", label=HALLUCINATED, spans=(span,)), PASSAGES, response).spans
    return found


def test_the_closest_sentence_shares_most_words_with_the_sentence_of_the_span() -> None:
    span = complete("The warranty lasts 36 months.", "36 months")
    assert span.text == "36 months"
    assert span.evidence == Evidence(text="The warranty lasts 24 months.", start=7, end=36, reason=CLOSEST)
    assert describe_mark(span).startswith(f'"36 months": {CLOSEST}')
    typed = replace(span, relation="unsupported_addition", element="date")
    assert describe_mark(typed).startswith(f'"36 months" (unsupported addition, date): {CLOSEST}')
    assert complete("Zebras run.", "Zebras").evidence == Evidence(reason=NOTHING)


@pytest.mark.parametrize(
    ("own", "found"),
    [
        (  # its place in the joined passages
            Evidence(text="A battery is included.", start=38, end=60, reason="r"),
            Evidence(text="A battery is included.", start=0, end=22, passage=1, reason="r"),
        ),
        (Evidence(text="It is red.", start=0, end=10, reason="r"), Evidence(reason="r")),  # in no passage
        (Evidence(text="A", start=0, end=1, passage=7, reason="r"), Evidence(reason="r")),  # of no passage
        (Evidence(start=5, end=9, reason="r"), Evidence(reason="r")),
    ],
)
def test_a_detectors_evidence_stays_and_points_into_its_passage(own: Evidence, found: Evidence) -> None:
    assert complete("It is blue.", "blue", own).evidence == found


@given(
    passages=st.lists(TEXTS, max_size=4),
    response=TEXTS,
    places=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=3),
    own=st.none() | EVIDENCE,
)
def test_evidence_points_into_the_context(
    passages: list[str], response: str, places: list[tuple[int, int]], own: Evidence | None
) -> None:
    spans = tuple(Span(start=min(place), end=max(place), label=UNTYPED, evidence=own) for place in places)
    for span in add_evidence(Prediction(id="0", spans=spans), passages, response).spans:
        assert span.text == response[span.start : span.end] and span.evidence is not None
        passage = passages[span.evidence.passage] if passages else ""
        assert span.evidence.text == passage[span.evidence.start : span.evidence.end]


class Fixed:
    """Calls every response hallucinated, and marks its end."""

    def predict_examples(self, examples: list[Example], *, progress: bool = False) -> list[Prediction]:
        spans = [Span(start=15, end=len(one.response), label=UNTYPED, score=0.9) for one in examples]
        every = zip(examples, spans, strict=True)
        return [Prediction(id=one.id, label=HALLUCINATED, score=0.9, spans=(span,)) for one, span in every]


@pytest.mark.parametrize("form", [list, iter, tuple])
def test_the_number_of_a_passage_is_that_of_the_given_list(form: type) -> None:
    given_passages = [PASSAGES[1], PASSAGES[1], {"text": PASSAGES[0]}]
    [span] = check(context=form(given_passages), answer="The warranty is void.", by=Fixed()).spans
    assert span.evidence is not None and span.evidence.passage == 2
    assert check(context=PASSAGES, answer="The warranty is void.", by=Fixed(), threshold=0.95).label == "faithful"
    assert check(context=PASSAGES, answer="The warranty is void.", by=Fixed(), threshold=0.95).spans == ()
