"""Options of a generator's training: taken of the `model` block, or of the task's own block as in older runs."""

import pytest

from faithkit.errors import UserError
from generation.options import GeneratorOptions


def test_an_unknown_architecture_is_explained() -> None:
    with pytest.raises(UserError, match=r"model\.architecture is 'tree'"):
        GeneratorOptions(architecture="tree", weights="x", max_length=64, max_response_length=16)
