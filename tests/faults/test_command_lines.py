"""A wrong command line is refused with its reason, in at most five lines, before anything is made or loaded."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.faults.conftest import Places
from tests.faults.processes import run_forked
from tests.faults.strategies import ODD_VALUES, share
from tests.running import ROOT, temporary_folder

pytestmark = pytest.mark.xdist_group("undisturbed")  # one process forks for all

# The script, its arguments, and words that the refusal must have, parted by "|"; `{name}` is a path of `Places`.
EVALUATE = "benchmark=begin checkpoint={critic} "
CONSTRUCT = "engine=transformers engine.model=smollm2-135m "
WRONG = [
    ("train", "modle=critic", "modle: there is no such key|did you mean model"),
    ("train", "experiment=tagger_local_real data_dir=/nowhere", "data_dir=DIR must hold ragtruth"),
    ("train", "model=critik", "model has no choice 'critik'|did you mean critic"),
    ("evaluate", "benchmark=lanterns benchmark.path=/nowhere", "benchmark has no choice 'lanterns'"),
    ("train", "optimizer.lrr=1", "optimizer.lrr: there is no such key|did you mean optimizer.lr"),
    ("train", "batch_size=4", "batch_size: there is no such key|model.batch_size"),
    ("train", "data.parts.0.path=x", "data.parts is a list"),
    ("train", "--frobnicate", "unknown option '--frobnicate'"),
    ("train", "--seed", "--seed has no value|seed=VALUE"),
    ("score", "--chekpoint {critic}", "unknown option '--chekpoint'|did you mean --checkpoint"),
    ("score", "--checkpoint {critic} /nowhere.csv", "no such file|/nowhere.csv"),
    ("train", "seed", "'seed' has no value|seed=VALUE"),
    ("train", "sеed=3", "cannot be read"),  # a Cyrillic letter
    ("train", "seed=${{nope}}", "nope"),
    ("train", "seed=abc optimizer.lr=fast data.num_train=-5", "seed is|optimizer.lr is|num_train is"),
    ("train", "model.weights=???", "model.weights is not set"),
    ("train", "model.weights=/nowhere", "model.weights|/nowhere"),
    ("train", "run_dir={file}", "this is a file|run_dir"),
    ("train", "resume=/nowhere", "nothing to resume|/nowhere"),
    ("train", "data=begin data.path=/nowhere", "no such file or folder|/nowhere|data.path"),
    ("train", "data=pairs", "data.path is not set|data.path=FILE"),
    ("train", "data.parts=[{{dataset: begn, path: embedded}}]", "unknown dataset 'begn'|did you mean begin"),
    ("train", "experiment=critic_local_real", "data_dir is not set|data_dir=VALUE"),
    ("train", "data.validation_fraction=0.6 data.test_fraction=0.6", "nothing would be left"),
    ("train", "callbacks.monitor=validation/embedded/loss", "keep the worst|callbacks.mode=min"),
    ("train", "trainer.accelerator=cuda", "there is no CUDA device"),
    ("train", "logger=wandb", "no account|logger.wandb.offline=true"),
    ("evaluate", EVALUATE + "checkpoint=null", "neither checkpoint nor predictions"),
    ("evaluate", EVALUATE + "checkpoint={folder}", "neither a run nor a Hugging Face folder"),
    ("evaluate", EVALUATE + "checkpoint={unfinished}", "has not finished|resume="),
    ("evaluate", EVALUATE + "checkpoint={generator}", "checkpoint is a generator|critic or a tagger"),
    ("evaluate", EVALUATE + "predictions=/nowhere.jsonl", "no such file|/nowhere.jsonl"),
    ("evaluate", EVALUATE + "resume={trained}", "one of train|faithkit train"),
    ("evaluate", "benchmark=transfer checkpoint={critic} benchmark.threshold_aim=luck", "threshold_aim is 'luck'"),
    ("evaluate", "benchmark=suppression checkpoint={critic} benchmark.strategies=[best]", "strategies is|fewest"),
    ("generate", "checkpoint={critic}", "checkpoint is a critic|generator"),
    ("generate", "checkpoint={generator} best_of=8", "best_of=8 needs a judge|detector=PATH"),
    ("generate", "checkpoint={generator} decoding=topk", "decoding has no choice 'topk'|greedy"),
    ("score", "path={table} checkpoint={critic} columns.knowledge=knowlege", "no column 'knowlege'|did you mean"),
    ("score", "path={table} checkpoint={critic} output={table}", "output is the table that is scored"),
    ("export", "checkpoint={critic} output_dir={file}", "this is a file"),
    ("export", "checkpoint={generator} output_dir={folder}/out format=onnx", "is for encoders|leave format out"),
    ("construct", CONSTRUCT + "pipeline=spontanous", "did you mean spontaneous"),
    ("construct", "", "no language model is named|engine=transformers"),
    ("construct", "engine=openai engine.model=a pipeline.path=/nowhere", "/nowhere"),
    ("report", "runs=[]", "runs"),
]
MISSING = "someone/such-weights"
# As processes, which import nothing heavy for it.
LIGHT = [
    ("train", "modle=critic experiment=nope", "modle|experiment has no choice"),
    ("evaluate", "benchmark=begin batch_size=-1", "batch_size: there is no such key|neither checkpoint"),
    ("generate", "checkpoint={generator} batch_size=-1", "batch_size is -1"),
    ("train", f"model.weights={MISSING} run_dir={{folder}}/run", f"{MISSING}|use a local name: |minilm"),
    ("chat", f"checkpoint={MISSING}", f"{MISSING}|use a local name: "),
]
HEAVY = ("torch", "transformers", "pytorch_lightning", "datasets")


@pytest.fixture(autouse=True)
def without_accounts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("NETRC", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))


def split(line: str) -> list[str]:
    """Splits a line at spaces outside brackets."""
    return re.findall(r"(?:\[[^]]*\]|[^ ])+", line)


@pytest.mark.parametrize(
    ("script", "line", "words"),
    [case if number % 5 == 0 else pytest.param(*case, marks=pytest.mark.slow) for number, case in enumerate(WRONG)],
)
def test_a_wrong_command_line_is_refused(script: str, line: str, words: str, places: Places) -> None:
    before = places.contents()
    ended = run_forked(script, *places.fill(split(line)))
    assert ended.code == 2 and "Traceback" not in ended.output, ended.output
    message = ended.output[ended.output.index("error: ") :]
    assert all(word in message for word in words.split("|")), message
    assert len(message.splitlines()) <= 5 and places.contents() == before


@pytest.mark.parametrize(("script", "line", "words"), LIGHT)
def test_a_refusal_loads_nothing_heavy(script: str, line: str, words: str, places: Places, tmp_path: Path) -> None:
    for name in HEAVY:  # an import of one of these fails
        (tmp_path / f"{name}.py").write_text("raise AssertionError('imported before the command line was checked')\n")
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hub"), "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-W", "ignore", "-m", "faithkit", script, *places.fill(split(line))]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **offline}, capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr and len(done.stderr.splitlines()) <= 5, done.stderr
    assert all(word in done.stderr for word in words.split("|")), done.stderr


TEXTS = "null -1 1e99 nan [] [[1]] {a:{b:[c]}} '' ??? ${oc.env:HOME} range(1,9) \\ ~".split()
KEYS = "seed model data optimizer.lr data.path model.batch_size trainer.devices callbacks.monitor".split()
LINES = st.one_of(
    st.builds("{}={}".format, st.sampled_from(KEYS), st.sampled_from([*TEXTS, *map(str, ODD_VALUES)])),
    st.builds("{}{}=1".format, st.sampled_from(("", "+", "++", "~", "-", "@")), st.sampled_from(KEYS)),
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=20),
)


@share(10)
@given(LINES)
def test_no_command_line_ends_in_a_traceback(argument: str) -> None:
    """`model.weights` is missing in each, so none begins its work."""
    ended = run_forked("train", "model.weights=/nowhere", argument, folder=temporary_folder("faithkit-lines-"))
    assert ended.code in (0, 2) and "Traceback" not in ended.output, ended.output
