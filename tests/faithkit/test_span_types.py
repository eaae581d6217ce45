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
from faithkit.records import AXES, ELEMENTS, RELATIONS, SPAN_TYPES, Prediction, Span, label_sets, span_type
from faithkit_workflows.detectors.actions import ACTION

C, A, F = RELATIONS
# Of each label set, the labels of each relation and element.
LABELS_BY_TYPE: Mapping[str, Mapping[tuple[str | None, str | None], tuple[str, ...]]] = {
    "ragtruth": {
        (C, None): ("conflict", "evident_conflict", "subtle_conflict"),
        (A, "claim"): ("baseless", "evident_baseless", "subtle_baseless"),
    },
    "everyday": {
        **{(C, element): (element,) for element in ("number", "unit", "date", "entity", "role", "negation")},
        (C, None): ("contradiction",),
        (A, "claim"): ("addition",),
    },
    "agents": {
        (C, "value"): ("wrong value", "stale value"),
        (C, "role"): ("merged rows",),
        (A, "value"): ("invented field",),
        (None, "claim"): ("claim of an earlier answer",),
        (A, "action"): ("action not done",),
        (C, "action"): ("failed call as success",),
    },
    "actions": {(A, "action"): ("unsupported_action",)},
    "faithdial": {
        (None, None): (
            *("hallucination", "partial hallucination", "entailment", "generic", "uncooperative", "advisement"),
            *("confirmation", "question", "acknowledgment", "interpretation", "reflection"),
        ),
        (None, "claim"): ("disclosure", "edification"),
    },
    "diahalu": {
        (None, "claim"): ("non-factual", "overreliance"),
        (C, None): ("incoherence",),
        (None, None): ("irrelevance", "reasoning error"),
    },
    "faithbench": {
        (C, None): ("unwanted.intrinsic",),
        (A, None): ("unwanted.extrinsic",),
        (None, None): ("unwanted", "questionable", "benign"),
    },
    "embedded": {
        (C, None): ("contradiction",),
        (A, "claim"): ("addition", "subjective"),
        (C, "entity"): ("entity_swap",),
        (C, "number"): ("number_swap",),
    },
    "fava": {
        (C, "entity"): ("entity",),
        (C, "role"): ("relation",),
        (C, None): ("contradictory",),
        (F, "entity"): ("invented",),
        (A, "claim"): ("subjective", "unverifiable"),
    },
    "lettucedetect": {
        (C, None): ("contradiction",),
        (C, "number"): ("contradiction/numerical",),
        (C, "date"): ("contradiction/temporal",),
        (C, "entity"): ("contradiction/entity",),
        (C, "role"): ("contradiction/relational",),
        (C, "value"): ("contradiction/value", "wrong_implementation"),
        (A, None): ("unsupported_addition",),
        (A, "claim"): tuple(f"unsupported_addition/{part}" for part in ("claim", "elaboration", "subjective")),
        (A, "action"): ("unsupported_addition/behavior", "unrequested_change"),
        (F, None): ("fabricated_reference",),
        (F, "entity"): ("fabricated_reference/entity",),
        (F, "section"): ("fabricated_reference/section",),
        (F, "identifier"): ("fabricated_reference/identifier", "fabricated_reference/attribute", "fabricated_api"),
    },
    "default": {
        **{(None, element): (element,) for element in ("unit", "negation", "quantifier", "identifier")},
        (None, "number"): ("duration", "money", "percentage", "number", "quantity"),
        (None, "date"): ("date", "time"),
        (None, "entity"): ("name",),
    },
}
ROWS = {
    name: {label: named for named, labels in by_type.items() for label in labels}
    for name, by_type in LABELS_BY_TYPE.items()
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
        *(DURATION, MONEY, SHARE, DAY, TIME, PLAIN, CODE, MEASURE, TITLE),
        *(DATE, NAME, NEGATION, NUMBER, QUANTIFIER, UNIT),
    ),
}


def test_every_label_means_what_its_row_says() -> None:
    found = {
        name: {label: (row["relation"], row["element"]) for label, row in labels.items()}
        for name, labels in label_sets().items()
    }
    assert found == ROWS
    assert {name: found[name].keys() >= {*labels} for name, labels in LABELS_IN_CODE.items()} == dict.fromkeys(
        LABELS_IN_CODE, True
    )


LABELS = st.sampled_from([(name, label) for name, labels in ROWS.items() for label in labels])
ANY = st.tuples(st.text(max_size=9), st.text(max_size=9))


@given(LABELS | ANY)
def test_a_type_is_of_the_axes_and_survives_a_predictions_file(named: tuple[str, str]) -> None:
    types = span_type(*named)
    assert types["relation"] in (*RELATIONS, None) and types["element"] in (*ELEMENTS, None)
    assert named[0] in ROWS or types == {"relation": None, "element": None}
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
    assert all((span.relation, span.element) == ROWS[label_set][span.label] for span in spans)
