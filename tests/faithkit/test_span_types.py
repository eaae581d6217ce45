"""The two axes of span types: what each label of each label set means, and that results keep it."""

from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critic.support.date_reader import CODE, DAY, DURATION, MEASURE, MONEY, PLAIN, SHARE, TIME, TITLE
from critic.support.normal_forms import DATE, NAME, NEGATION, NUMBER, QUANTIFIER, UNIT
from data_modules.build import read_block
from data_modules.datasets.agents import FAULTS
from data_modules.datasets.diahalu import TYPES
from data_modules.datasets.everyday import ERRORS
from data_modules.datasets.faithdial import TAGS
from data_modules.embedded.facts import RATES
from faithkit.records import SPAN_TYPES, Prediction, Span
from faithkit.span_types import AXES, ELEMENTS, RELATIONS, label_sets, span_type
from faithkit_workflows.detectors.actions import ACTION

C, A, F = RELATIONS
MEANINGS = {  # one label of each kind of meaning, and of each label set
    ("ragtruth", "subtle_conflict"): (C, None),
    ("ragtruth", "evident_baseless"): (A, "claim"),
    ("everyday", "unit"): (C, "unit"),
    ("agents", "merged rows"): (C, "role"),
    ("agents", "claim of an earlier answer"): (None, "claim"),
    ("actions", "unsupported_action"): (A, "action"),
    ("faithdial", "edification"): (None, "claim"),
    ("diahalu", "incoherence"): (C, None),
    ("faithbench", "unwanted.extrinsic"): (A, None),
    ("embedded", "number_swap"): (C, "number"),
    ("fava", "invented"): (F, "entity"),
    ("lettucedetect", "fabricated_reference/section"): (F, "section"),
    ("default", "quantity"): (None, "number"),
}
LABELS_IN_CODE: Mapping[str, Iterable[str]] = {
    "ragtruth": SPAN_TYPES,
    "everyday": ERRORS,
    "agents": FAULTS,
    "actions": (ACTION,),
    "faithdial": TAGS,
    "diahalu": TYPES,
    "embedded": RATES,
    "default": (
        DURATION, MONEY, SHARE, DAY, TIME, PLAIN, CODE, MEASURE, TITLE, DATE, NAME, NEGATION, NUMBER, QUANTIFIER, UNIT,
    ),
}  # fmt: skip


def test_labels_have_their_meanings_and_none_of_the_code_is_missing() -> None:
    assert {label_set for label_set, _ in MEANINGS} == label_sets().keys()
    for (label_set, label), meaning in MEANINGS.items():
        assert tuple(span_type(label_set, label).values()) == meaning
    assert not [(name, label) for name, labels in LABELS_IN_CODE.items() for label in {*labels} - {*label_sets()[name]}]


LABELS = st.sampled_from([(name, label) for name, labels in label_sets().items() for label in labels])
ANY = st.tuples(st.text(max_size=9), st.text(max_size=9))


@given(LABELS | ANY)
def test_a_type_is_of_the_axes_and_survives_a_predictions_file(named: tuple[str, str]) -> None:
    types = span_type(*named)
    assert types["relation"] in (*RELATIONS, None) and types["element"] in (*ELEMENTS, None)
    assert named[0] in label_sets() or types == {"relation": None, "element": None}
    span = Span(start=0, end=1, label=named[1], **types)
    found = Prediction(id="a", label="hallucinated", spans=(span,))
    row = found.to_dict()
    assert {axis for axis in AXES if axis in row["spans"][0]} == {axis for axis, value in types.items() if value}
    assert Prediction.from_dict(row) == found


@pytest.mark.parametrize(
    ("block", "label_set"),
    [
        ({"dataset": "everyday", "split": "test"}, "everyday"),
        ({"dataset": "agents", "split": "test"}, "agents"),
        ({"dataset": "ragtruth", "path": "embedded", "split": "test"}, "ragtruth"),
        ({"dataset": "embedded", "split": "test"}, "embedded"),
    ],
)
def test_the_spans_of_a_dataset_have_the_types_of_its_labels(block: dict[str, str], label_set: str) -> None:
    spans = [span for example in read_block(block) for span in example.spans or ()]
    assert spans and {span.relation for span in spans} >= {C, A}
    assert all((span.relation, span.element) == tuple(span_type(label_set, span.label).values()) for span in spans)
