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
ROWS: Mapping[str, Mapping[str, tuple[str | None, str | None]]] = {
    "ragtruth": {
        "conflict": (C, None),
        "baseless": (A, "claim"),
        "evident_conflict": (C, None),
        "subtle_conflict": (C, None),
        "evident_baseless": (A, "claim"),
        "subtle_baseless": (A, "claim"),
    },
    "everyday": {
        "number": (C, "number"),
        "unit": (C, "unit"),
        "date": (C, "date"),
        "entity": (C, "entity"),
        "role": (C, "role"),
        "negation": (C, "negation"),
        "contradiction": (C, None),
        "addition": (A, "claim"),
    },
    "agents": {
        "wrong value": (C, "value"),
        "merged rows": (C, "role"),
        "invented field": (A, "value"),
        "stale value": (C, "value"),
        "claim of an earlier answer": (None, "claim"),
        "action not done": (A, "action"),
        "failed call as success": (C, "action"),
    },
    "actions": {"unsupported_action": (A, "action")},
    "faithdial": {
        "hallucination": (None, None),
        "partial hallucination": (None, None),
        "entailment": (None, None),
        "generic": (None, None),
        "uncooperative": (None, None),
        "disclosure": (None, "claim"),
        "edification": (None, "claim"),
        "advisement": (None, None),
        "confirmation": (None, None),
        "question": (None, None),
        "acknowledgment": (None, None),
        "interpretation": (None, None),
        "reflection": (None, None),
    },
    "diahalu": {
        "non-factual": (None, "claim"),
        "incoherence": (C, None),
        "irrelevance": (None, None),
        "overreliance": (None, "claim"),
        "reasoning error": (None, None),
    },
    "faithbench": {
        "unwanted.intrinsic": (C, None),
        "unwanted.extrinsic": (A, None),
        "unwanted": (None, None),
        "questionable": (None, None),
        "benign": (None, None),
    },
    "embedded": {
        "contradiction": (C, None),
        "addition": (A, "claim"),
        "subjective": (A, "claim"),
        "entity_swap": (C, "entity"),
        "number_swap": (C, "number"),
    },
    "fava": {
        "entity": (C, "entity"),
        "relation": (C, "role"),
        "contradictory": (C, None),
        "invented": (F, "entity"),
        "subjective": (A, "claim"),
        "unverifiable": (A, "claim"),
    },
    "lettucedetect": {
        "contradiction": (C, None),
        "contradiction/numerical": (C, "number"),
        "contradiction/temporal": (C, "date"),
        "contradiction/entity": (C, "entity"),
        "contradiction/relational": (C, "role"),
        "contradiction/value": (C, "value"),
        "unsupported_addition": (A, None),
        "unsupported_addition/claim": (A, "claim"),
        "unsupported_addition/elaboration": (A, "claim"),
        "unsupported_addition/subjective": (A, "claim"),
        "unsupported_addition/behavior": (A, "action"),
        "fabricated_reference": (F, None),
        "fabricated_reference/entity": (F, "entity"),
        "fabricated_reference/section": (F, "section"),
        "fabricated_reference/identifier": (F, "identifier"),
        "fabricated_reference/attribute": (F, "identifier"),
        "wrong_implementation": (C, "value"),
        "unrequested_change": (A, "action"),
        "fabricated_api": (F, "identifier"),
    },
    "default": {
        "unit": (None, "unit"),
        "negation": (None, "negation"),
        "quantifier": (None, "quantifier"),
        "duration": (None, "number"),
        "money": (None, "number"),
        "percentage": (None, "number"),
        "number": (None, "number"),
        "quantity": (None, "number"),
        "date": (None, "date"),
        "time": (None, "date"),
        "identifier": (None, "identifier"),
        "name": (None, "entity"),
    },
}  # fmt: skip
LABELS_IN_CODE: Mapping[str, Iterable[str]] = {
    "ragtruth": SPAN_TYPES,
    "everyday": ERRORS,
    "agents": FAULTS,
    "actions": (ACTION,),
    "faithdial": TAGS,
    "diahalu": TYPES,
    "embedded": RATES,
    "default": (
        DURATION,
        MONEY,
        SHARE,
        DAY,
        TIME,
        PLAIN,
        CODE,
        MEASURE,
        TITLE,
        DATE,
        NAME,
        NEGATION,
        NUMBER,
        QUANTIFIER,
        UNIT,
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
