"""Every wrong command line is refused with its reason before anything is made; the right ones pass."""

import resource
from pathlib import Path

import pytest

from faithkit_workflows import models
from tests.faults.command_lines import BASE, MODELS, RIGHT, Line, wrong_lines
from tests.faults.command_places import Places, command_line, refusal
from tests.running import compose, run

WRONG = list(wrong_lines())
HEAVY = ("numpy", "pyarrow", "pandas", "sklearn", "torch", "transformers", "pytorch_lightning", "datasets")
# Some of them once more, as a user would start them: the words, and what is not imported for them.
PROCESSES = (
    ("train.py", ("seed=abc", "optimizer.lr=fast", "model.batch_size=-4"), ("seed is", "lr is", "batch_size is")),
    ("train.py", ("modle=critic", "experiment=nope"), ("modle", "experiment has no choice")),
    ("train.py", ("run_dir={file}",), ("this is a file",)),
    ("train.py", ("trainer=gpu",), ("no CUDA device",)),
    ("train.py", ("data=ragtruth", "model=tagger", "data.path=/nowhere"), ("no such file or folder",)),
    ("train.py", ("experiment=nope", "model=t5", "objective=infonce"), ("experiment has no choice",)),
    ("train.py", ("logger=wandb",), ("logger.wandb.offline=true",)),
    ("train.py", ("-m", "optimizer.lr=1e-3,fast"), ("optimizer.lr is 'fast'",)),
    ("train.py", ("resume={generated}",), ("one of generate",)),
    ("evaluate.py", ("benchmark=faithdial", "checkpoint={critic}"), ("checkpoint is a critic",)),
    ("evaluate.py", ("predictions=/nowhere.jsonl",), ("no such file",)),
    ("evaluate.py", ("benchmark=begin", "batch_size=-1"), ("batch_size: there is no such key", "neither checkpoint")),
    ("evaluate.py", ("benchmark=transfer", "benchmark.threshold_aim=luck"), ("threshold_aim is 'luck'",)),
    ("generate.py", ("checkpoint={generator}", "batch_size=-1"), ("batch_size is -1",)),
    ("generate.py", ("resume={trained}",), ("one of train",)),
    ("export.py", ("checkpoint=/nowhere", "output_dir={folder}/x"), ("no such run",)),
)


def test_the_table_is_as_long_as_the_campaign_that_it_repeats() -> None:
    assert len({str(line) for line in WRONG}) == len(WRONG) >= 289
    assert {line.script for line in WRONG} == set(BASE)


@pytest.mark.parametrize("line", WRONG, ids=str)
def test_a_wrong_command_line_says_what_is_wrong(line: Line, places: Places) -> None:
    before = places.contents()
    message = refusal(line.script, places.fill(line.arguments))
    assert message is not None, "accepted"
    assert len(message.splitlines()) <= 5, message
    for word in line.words:
        assert word in message, message
    assert places.contents() == before, "nothing is made"


@pytest.mark.parametrize(("arguments", "words"), MODELS)
def test_asking_for_a_model_that_is_not_there_says_which_are(
    arguments: tuple[str, ...],
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["faithkit models", *arguments])
    with pytest.raises(SystemExit) as ended:
        models.run()
    shown = capsys.readouterr()
    assert ended.value.code == 2 and not shown.out and len(shown.err.splitlines()) <= 3
    assert all(word in shown.err for word in words), shown.err


@pytest.mark.parametrize(("script", "arguments"), RIGHT)
def test_a_right_command_line_passes(script: str, arguments: tuple[str, ...], places: Places) -> None:
    base = () if "--cfg" in arguments or "-m" in arguments else BASE[script]
    assert refusal(script, places.fill((*base, *arguments))) is None


@pytest.mark.parametrize(("script", "arguments"), [line for line in RIGHT if not line[1] or line[1][0][0] != "-"])
def test_the_table_sees_the_configurations_that_hydra_composes(
    script: str, arguments: tuple[str, ...], places: Places
) -> None:
    filled = places.fill((*BASE[script], *arguments))
    assert command_line(script, filled).compose() == compose(script, *filled)


@pytest.mark.parametrize(("script", "arguments", "words"), PROCESSES)
def test_a_process_refuses_it_too(
    script: str, arguments: tuple[str, ...], words: tuple[str, ...], places: Places, tmp_path: Path
) -> None:
    # Where one of these would be imported it fails: nothing heavy may be needed to say no.
    for name in HEAVY:
        (tmp_path / f"{name}.py").write_text("raise AssertionError('imported before the command line was checked')\n")
    environment = {"PYTHONPATH": str(tmp_path), "NETRC": "/nowhere", "WANDB_MODE": "", "HOME": str(tmp_path)}
    before, start = places.contents(), _seconds_of_children()
    done = run(script, *places.fill(arguments), **environment)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) <= 5
    assert all(word in done.stderr for word in words), done.stderr
    assert places.contents() == before and _seconds_of_children() - start < 2


def _seconds_of_children() -> float:
    """The processor time that the processes started here have taken."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
