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


def checkpoint_events(whole: Undisturbed) -> list[int]:
    """Numbers of the events of checkpoints, with those in folders that are being deleted."""
    return [number for number, event in enumerate(whole.events, 1) if "ckpt" in event]


def test_a_kill_while_parts_are_written(sharded: Undisturbed, tmp_path: Path) -> None:
    numbers = checkpoint_events(sharded)
    assert len(numbers) > 20 and any("index.ckpt" in event for event in sharded.events)
    for number in numbers[len(numbers) // 3], numbers[-len(numbers) // 4]:
        kill_and_resume(sharded, number, tmp_path / f"{number}")


@pytest.mark.slow
def test_a_kill_at_every_event_of_checkpoints_in_parts(sharded: Undisturbed, tmp_path: Path) -> None:
    for number in checkpoint_events(sharded):
        kill_and_resume(sharded, number, tmp_path / f"{number}")
