"""Generators made once for all tests here."""

from pathlib import Path

import pytest

from data_modules.turns import CAUSAL, SEQ2SEQ
from tests.generation.folders import CONTROL, write_generator


@pytest.fixture(scope="session")
def tiny_t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_generator(tmp_path_factory.mktemp("generator-t5"), SEQ2SEQ)


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_generator(tmp_path_factory.mktemp("generator-llama"), CAUSAL)


@pytest.fixture(scope="session")
def tiny_controlled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_generator(tmp_path_factory.mktemp("generator-controlled"), CAUSAL, CONTROL)
