"""The examples in the docstrings of the losses run and give what they say."""

import doctest
from importlib import import_module

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "critic.losses.sequence_loss",
        "critic.sequence.evidence",
        "critic.losses.overlap_supervision",
        "critic.losses.tag_loss",
    ],
)
def test_the_examples_of_the_losses_run(module: str) -> None:
    found = doctest.testmod(import_module(module))
    assert found.attempted >= 3 and not found.failed
