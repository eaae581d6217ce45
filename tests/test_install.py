"""An installed faithkit works from any folder, and brings no name into the environment that is not its own."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.faults.test_model_folder import write_critic, write_tagger
from tests.running import ROOT, SMALL

TASKS = ("critic", "generation", "judge", "construction")
OURS = {"faithkit", "data_modules", *TASKS, "faithkit_workflows", "faithkit_papers"}
DECOYS = ("common", "evaluation", "inference", "tests", "configs", "utils", "speed")
# What requirements/score.lock leaves out.
NOT_FOR_SCORING = (
    *("lightning", "pytorch_lightning", "torchmetrics", "wandb", "spacy", "pandas", "datasets", "sacrebleu", "crepes"),
    *("sklearn", "scipy", "joblib", "pyarrow"),
)
HAS_PAPERS = (ROOT / "faithkit_papers").is_dir()
COMMANDS = ("train", "evaluate", "generate", "score", "chat", "export", "construct", *(["reproduce"] * HAS_PAPERS))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin/ folder of a fresh environment that has the wheel, and sees the dependencies of this one."""
    environment = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = environment / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", "--quiet"]
    subprocess.run([*install, "--disable-pip-version-check", str(wheel)], check=True, capture_output=True)
    (packages,) = (environment / "lib").glob("python*/site-packages")
    # Only the folder itself: path files within it, such as that of an editable install, are not followed.
    (packages / "dependencies.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")
    return environment / "bin"


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with packages of the names that other projects have too; to import one is an error."""
    folder = tmp_path_factory.mktemp("elsewhere")
    for name in DECOYS:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(f"raise ImportError('the decoy {name} was imported')\n")
    return folder


def run_in(folder: Path, *command: object) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "FAITHKIT_RUN_DIR")}
    return subprocess.run(
        [str(part) for part in command], cwd=folder, env=environment, capture_output=True, text=True, timeout=240
    )


def test_the_wheel_holds_our_names_alone_with_configurations_and_types(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} <= OURS
    have = ("configs/train.yaml", "configs/data/_base.yaml", "pages/page_files/page.html", "published/luna.json")
    of_papers = ("published/faithdial_sizes.json", "reproduction/ragtruth.yaml", "corpus/datasheet.md")
    expected = {f"faithkit/{name}" for name in have}
    expected |= {f"faithkit_papers/{name}" for name in of_papers if HAS_PAPERS}
    assert expected <= set(names)
    assert {f"{package}/py.typed" for package in top & OURS} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.slow
def test_the_public_classes_are_imported_among_decoys(installed: Path, elsewhere: Path) -> None:
    code = "import faithkit; from faithkit import Critic, Tagger, Generator; print(faithkit.__file__, dir(faithkit))"
    done = run_in(elsewhere, installed / "python", "-W", "ignore", "-c", code)
    assert done.returncode == 0, done.stderr
    assert str(installed.parent) in done.stdout
    assert all(f"'{name}'" in done.stdout for name in ("Critic", "Tagger", "Generator"))


def test_the_command_tells_what_there_is(installed: Path, elsewhere: Path) -> None:
    done = run_in(elsewhere, installed / "faithkit", "--help")
    assert done.returncode == 0 and all(f"  {command} " in done.stdout for command in COMMANDS), done.stderr
    wrong = run_in(elsewhere, installed / "faithkit", "trian")
    assert wrong.returncode == 2 and "did you mean train?" in wrong.stderr
    assert run_in(elsewhere, installed / "faithkit", "--version").stdout.strip().startswith("0.")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_composes(command: str, installed: Path, elsewhere: Path) -> None:
    shown = run_in(elsewhere, installed / "faithkit", command, "--help")
    assert shown.returncode == 0 and "key=value" in shown.stdout, shown.stderr
    composed = run_in(elsewhere, installed / "faithkit", command, "--cfg", "job")
    assert composed.returncode == 0 and "debug: false" in composed.stdout, composed.stderr


@pytest.mark.slow
def test_it_trains_and_scores_rows_of_ones_own(installed: Path, elsewhere: Path, tiny_bert: Path) -> None:
    options = (f"model.weights={tiny_bert}", "run_dir=critic", "logger=none", "callbacks.num_examples=0", *SMALL)
    trained = run_in(elsewhere, installed / "faithkit", "train", "model=critic", *options)
    assert trained.returncode == 0, trained.stderr
    (elsewhere / "my rows.csv").write_text("knowledge,response\nThe river is long.,It is long.\n")
    scored = run_in(elsewhere, installed / "faithkit", "score", "my rows.csv", "checkpoint=critic", "run_dir=scored")
    assert scored.returncode == 0, scored.stderr
    header, row = (elsewhere / "scored" / "my rows.scored.csv").read_text().splitlines()
    assert header == "knowledge,response,label,probability,spans" and row.startswith("The river is long.,It is long.,")


def test_scoring_needs_none_of_what_training_needs(tmp_path: Path) -> None:
    table, out, critic, tagger = (tmp_path / name for name in ("rows.csv", "scored", "critic", "tagger"))
    write_critic(critic)
    write_tagger(tagger)
    table.write_text("knowledge,response\nThe river is long.,It is long.\nThe city is old.,It is new.\n")
    code = f"""
import sys
sys.modules |= dict.fromkeys({NOT_FOR_SCORING})
from faithkit import Critic, Tagger
from faithkit.__main__ import main
pair = dict(knowledge="The river is long.", response="It is long.")
Critic.load({str(critic)!r}).score(**pair).label
Tagger.load({str(tagger)!r}).predict(**pair).spans
sys.argv[1:] = ["score", {str(table)!r}, "checkpoint={tagger}", "run_dir={out}"]
main()
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "answers called hallucinated" in done.stdout, done.stderr
    verdicts = [row.split(",")[2] for row in (out / "rows.scored.csv").read_text().splitlines()]
    assert verdicts[0] == "label" and len(verdicts) == 3 and set(verdicts[1:]) <= {"faithful", "hallucinated"}
