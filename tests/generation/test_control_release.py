"""Control tokens as FaithDial's release makes them, beside ours."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_modules.encoding.sequence_layout import SEQ2SEQ, TurnLayout
from faithkit.errors import UserError
from faithkit_workflows.answering.strategies import FeatureReader
from generation.control.response_features import fit_release_terciles, levels, lexical_overlap, release_overlap
from generation.settings import Settings
from generation.task import ControlEncoder
from tests.generation.judges import Words
from tests.generation.test_control import ROWS, ctrl, fitted, turns
from tests.running import compose

GROUPS = ("voice", "release_overlap", "release_entailment")


def test_its_overlap_counts_tokens_as_they_are_written() -> None:
    pytest.importorskip("spacy")
    knowledge, said = "The river isn't long.", "the river is long, it is long."
    # the | river | is | long | , | it | is | long | .  against  The | river | is | n't | long | .
    assert release_overlap(knowledge, said) == 6 / 9
    assert lexical_overlap(knowledge, said) == 4 / 7
    assert release_overlap(knowledge, "") == release_overlap("", said) == 0


def release_groups(overlaps: list[float]) -> list[int]:
    """The levels as the release assigns them to the rows that they are fitted on, written out."""
    order = sorted(range(len(overlaps)), key=lambda row: overlaps[row])
    sizes = [len(order) // 3 + (place < len(order) % 3) for place in range(3)]
    low = order[: sizes[0]]
    middle = order[sizes[0] : sizes[0] + sizes[1]]
    bound_low = overlaps[low[-1]] if low else 0
    bound_middle = overlaps[middle[-1]] if middle else 0
    return [0 if o <= bound_low else 1 if o <= bound_middle else 2 for o in overlaps]


@given(st.lists(st.integers(0, 12).map(lambda n: n / 12), min_size=1, max_size=40))
def test_its_terciles_give_its_levels(values: list[float]) -> None:
    column = np.array(values)
    found = levels({"release_overlap": column}, fit_release_terciles(column))[:, 0].tolist()
    assert found == release_groups(values)


def test_a_response_is_entailed_or_not() -> None:
    three = ctrl(("entailment",)).measure(ROWS)["entailment"]
    two = ctrl(("release_entailment",)).measure(ROWS)["release_entailment"]
    assert (np.asarray(three).tolist(), np.asarray(two).tolist()) == ([2, 0, 1, 1], [1, 0, 0, 0])


def test_training_and_the_reader_agree_on_the_tokens(language_models: dict[str, Path]) -> None:
    pytest.importorskip("spacy")
    plain = turns(language_models["bart"], SEQ2SEQ, packed=False, groups=GROUPS)
    encoder = ControlEncoder(plain, plain, ctrl(GROUPS))
    batch = encoder.collate(fitted(encoder, ROWS))
    first = [tuple(plain.tokenizer.convert_ids_to_tokens(row[:3])) for row in batch["input_ids"]]
    assert {row[2] for row in first} == {"<|entailed|>", "<|not-entailed|>"}
    settings = Settings(layout=plain.layout, architecture="seq2seq", thresholds=encoder.thresholds, origin={})
    again = Settings.from_sidecar(settings.to_sidecar())
    load: Any = lambda _: Words()  # noqa: E731
    assert FeatureReader.of(again, entailment="some/model", load=load)(ROWS) == first


def test_two_measures_of_one_feature_exclude_each_other() -> None:
    with pytest.raises(UserError, match="overlap and release_overlap name the same feature"):
        TurnLayout(kind=SEQ2SEQ, max_length=64, max_response_length=8, control=("overlap", "release_overlap"))


def test_the_configuration_names_them() -> None:
    assert tuple(compose("train", "model=t5", "control=ctrl_release").control.groups) == GROUPS
