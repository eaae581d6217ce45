"""Negatives are encoded beside their row: capped in number, cut where they are long, and never read as markers."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_modules.encoding.candidate_encoder import CUT, NONE
from tests.data_modules.examples import example
from tests.generation.contrast import ROWS, prepared


@pytest.mark.parametrize("family", ["t5", "gpt2"])
def test_negatives_are_counted_cut_and_capped(family: str, language_models: dict[str, Path]) -> None:
    _, _, encoder = prepared(language_models[family], family, num_negatives=2)
    long = replace(ROWS[0], negatives=("it is long " * 40, "no", "yes"))
    counts: Counter[str] = Counter()
    rows = [long, *ROWS[1:], ROWS[2]]
    columns: dict[str, Any] = encoder.encode(rows, counts)
    plain: dict[str, Any] = encoder.turns.encode(rows, Counter())
    lengths = [columns["negative_length"].row(place).tolist() for place in range(5)]
    assert [len(row) for row in lengths] == [2, 1, 0, 2, 0] and lengths[0][0] == 40
    assert (columns["length"] - plain["length"]).tolist() == [sum(row) for row in lengths]
    ends = columns["negative"].values[np.cumsum([n for row in lengths for n in row]) - 1]
    assert set(ends.tolist()) == {encoder.turns.tokenizer.eos_token_id}
    assert counts[CUT] == 1 and counts[NONE] == 2
    assert encoder.fingerprint() != prepared(language_models[family], family)[2].fingerprint()


def test_a_negative_never_makes_a_causal_sequence_too_long(language_models: dict[str, Path]) -> None:
    _, _, encoder = prepared(language_models["llama"], "llama")
    full = replace(example(knowledge="x " * 50, response="it is"), negatives=("it is long " * 40,))
    columns: dict[str, Any] = encoder.encode([full], Counter())
    size = len(columns["context"].values) + len(columns["negative"].values)
    assert size == encoder.turns.layout.max_length
