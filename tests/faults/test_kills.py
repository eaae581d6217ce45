"""Kill -9 at every file event of a tiny training, evaluation and generation: resumed, it ends in the same results.

The fast tests take a few events of each; the slow ones every event.
"""

from pathlib import Path

import pytest

from tests.faults.kills import Undisturbed, kill_and_resume, sample

pytestmark = pytest.mark.xdist_group("undisturbed")  # made once for all
NAMES = ("train", "evaluate", "generate")
FEW = {"train": 2, "evaluate": 1, "generate": 1}


@pytest.mark.parametrize("name", NAMES)
def test_a_few_kills(name: str, commands: dict[str, Undisturbed], tmp_path: Path) -> None:
    for number in sample(commands[name], FEW[name], seed=0):
        kill_and_resume(commands[name], number, tmp_path / f"{number}")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_kill_at_every_event(name: str, commands: dict[str, Undisturbed], tmp_path: Path) -> None:
    assert len(commands[name].events) > 20
    for number in range(1, len(commands[name].events) + 1):
        kill_and_resume(commands[name], number, tmp_path / f"{number}")
