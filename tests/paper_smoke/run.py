"""Takes one recipe through all that a user does with it: train, be killed, resume, export, evaluate."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.paper_smoke.architectures import VERSION, make_weights, num_parameters
from tests.paper_smoke.forks import Fork
from tests.paper_smoke.processes import Watched, watch
from tests.paper_smoke.recipes import Recipe
from tests.paper_smoke.rows import Lengths, write_answers, write_turns
from tests.running import ROOT

LIMIT = 1200.0  # seconds of one command
# What two steps on a CPU need in every recipe, beside batch size and files.
SHORT = (
    "model.num_epochs=1",
    "callbacks.save_every_seconds=0",
    "callbacks.log_every_num_steps=1",
    "callbacks.num_examples=1",
    "callbacks.num_resamples=20",
    "callbacks.progress_bar=false",
)
NO_METRIC_MODELS = (
    "benchmark.bert_score.encoder=null",
    "benchmark.q2.questions=null",
    "benchmark.q2.answers=null",
    "benchmark.nli=null",
)
NLI = "roberta-large-mnli"
NUM_TESTED = 4


@dataclass(slots=True)
class Result:
    """The outcome of a recipe.

    Args:
        commands: What was run, as one would type it; a recipe of other commands is run again.
        parameters: Of the weights that it began with.
        seconds: Of each command by its name.
        memory: The peak of each command's processes in GiB, the largest first.
        error: Of the command that failed, its last line.
    """

    name: str
    commands: dict[str, str]
    processes: int = 1
    parameters: int = 0
    step_seconds: float | None = None
    resumed_at: int | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    memory: dict[str, list[float]] = field(default_factory=dict)
    error: str | None = None

    @property
    def passed(self) -> bool:
        return self.error is None

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.name}.json").write_text(json.dumps(asdict(self), indent=1))


class Workshop:
    """The folders of a smoke test: weights and rows, which stay, and the run of a recipe, which goes.

    Args:
        root: Has all of them.
        small: Models of few dimensions in the place of the true ones, for tests of this program.
    """

    def __init__(self, root: Path, *, small: bool = False):
        self.root, self.small = root.resolve(), small

    @property
    def results(self) -> Path:
        return self.root / "results"

    def weights(self, name: str) -> Path:
        return self.root / f"weights-{VERSION}" / name

    def run_folder(self, recipe: Recipe) -> Path:
        return self.root / "runs" / recipe.name

    def rows(self, recipe: Recipe) -> Path:
        return self.root / "rows" / recipe.name

    def prepare(self, recipe: Recipe) -> int:
        """Makes a recipe's weights and writes its rows, lengthened by their tokenizer; returns its parameters."""
        for name in needed_weights(recipe):
            make_weights(self.weights(name), small=self.small)
        self._write_rows(recipe)
        return num_parameters(recipe.weights)

    def tokenizer(self, recipe: Recipe) -> Any:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self.weights(recipe.weights))

    def _write_rows(self, recipe: Recipe) -> Path:
        folder = self.rows(recipe)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        tokenizer = self.tokenizer(recipe)

        def count(text: str) -> int:
            return len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

        if recipe.task == "tagger":
            num_rows = {"train": 2 * recipe.batch_size + 4, "test": NUM_TESTED}
            return write_answers(folder, num_rows, count, recipe.max_length)
        num_rows = {"train": 4 * recipe.batch_size, "validation": 2 * NUM_TESTED, "test": 2 * NUM_TESTED}
        if recipe.task == "critic":
            return write_turns(folder, num_rows, count, Lengths(knowledge=recipe.max_length))
        # Knowledge and response are never cut: a part of the room each, and more history than the rest holds.
        lengths = Lengths(knowledge=100, history=recipe.max_length, response=70)
        return write_turns(folder, num_rows, count, lengths)


def stored_result(recipe: Recipe, shop: Workshop) -> Result | None:
    """Reads what became of a recipe before; None where it was not run, or its commands were others."""
    path = shop.results / f"{recipe.name}.json"
    result = Result(**json.loads(path.read_text())) if path.exists() else None
    return result if result is not None and result.commands == typed(commands_of(recipe, shop)) else None


def is_done(recipe: Recipe, shop: Workshop) -> bool:
    """Tells whether a recipe has passed as it is now."""
    result = stored_result(recipe, shop)
    return result is not None and result.passed


def commands_of(recipe: Recipe, shop: Workshop) -> dict[str, list[str]]:
    """The commands of a recipe by name, in their order."""
    run, rows = shop.run_folder(recipe), shop.rows(recipe)
    weights, export = shop.weights(recipe.weights), run / "export"
    train = ["train.py", *recipe.arguments, "scale=paper", f"model.weights={weights}", *hardware(recipe)]
    train += [f"model.batch_size={recipe.batch_size}", *SHORT, *recipe.own, f"run_dir={run / 'run'}"]
    train += [f"data.path={rows}"]
    if recipe.task != "tagger":
        train += [f"data.num_rows={2 * recipe.batch_size}"]
    if any(argument.startswith("control=") for argument in recipe.arguments):
        train += [f"control.entailment={shop.weights(NLI)}"]
    if "data=wow_then_faithdial" in recipe.arguments:
        train += ["data.wow_path=embedded"]
    commands = {
        "train": train,
        "resume": ["train.py", f"resume={run / 'run'}"],
        "export": ["export.py", f"checkpoint={run / 'run'}", f"output_dir={export}"],
    }
    for name in recipe.benchmarks:
        commands[f"evaluate {name}"] = evaluation(recipe, name, shop, run / f"benchmark-{name}")
    return commands


def hardware(recipe: Recipe) -> list[str]:
    """The trainer: the papers' runs have a GPU, or several under DDP; BF16 is asked for, as a GPU would choose it."""
    precision = [] if any("trainer.precision" in own for own in recipe.own) else ["trainer.precision=bf16-mixed"]
    if recipe.processes == 1:
        return ["trainer=cpu", *precision]
    return ["trainer=ddp", "trainer.accelerator=cpu", f"trainer.devices={recipe.processes}", *precision]


def evaluation(recipe: Recipe, name: str, shop: Workshop, run: Path) -> list[str]:
    """The command that measures an export on a benchmark."""
    export, rows = shop.run_folder(recipe) / "export", shop.rows(recipe)
    command = ["evaluate.py", f"benchmark={name}", "scale=paper", f"run_dir={run}"]
    command += ["num_resamples=20", "num_examples=1"]
    if name == "transfer":
        return command + transfer(recipe, shop)
    command += [f"checkpoint={export}"]
    lengthened = {"critic": "faithcritic", "tagger": "ragtruth", "generator": "faithdial"}[recipe.task]
    if name == "transfer_responses":
        names = ("cmu_dog", "topical_chat", "wow")
        command += [f"benchmark.datasets.{one}.{key}" for one in names for key in ("path=embedded", "num_rows=2")]
    else:
        command += [f"benchmark.path={rows if name == lengthened else 'embedded'}"]
        command += [f"benchmark.num_rows={12 if name == 'suppression' else NUM_TESTED}"]
    if name == "suppression":
        command += ["benchmark.groups={all: null}"]  # the embedded corpus has three models of its own
    if recipe.task == "generator":
        command += metric_models(shop) if recipe.metric_models else NO_METRIC_MODELS
    return command


def metric_models(shop: Workshop) -> list[str]:
    """The models of all metrics of responses; the critic is an NLI model with its classes named."""
    return [
        f"benchmark.bert_score.encoder={shop.weights('roberta-large')}",
        f"benchmark.q2.questions={shop.weights('question-generation')}",
        f"benchmark.q2.answers={shop.weights('question-answering')}",
        "benchmark.q2.candidates=spacy-sm",
        f"benchmark.nli={shop.weights(NLI)}",
        f"benchmark.critic={shop.weights(NLI)}",
        "labels={0: hallucinated, 1: hallucinated, 2: faithful}",
        "benchmark.official=true",
    ]


def transfer(recipe: Recipe, shop: Workshop) -> list[str]:
    """Table 4 with one critic that it trains itself; the others are the one at hand."""
    export, weights = shop.run_folder(recipe) / "export", shop.weights(recipe.weights)
    short = [f"model.weights={weights}", f"model.batch_size={recipe.batch_size}", *hardware(recipe), *SHORT]
    overrides = [*short, f"data.num_rows={2 * recipe.batch_size}"]
    quoted = ",".join(f"'{override}'" for override in overrides)
    command = [f"benchmark.overrides=[{quoted}]", "benchmark.train.decode.path=embedded"]
    command += [f"benchmark.train.{name}.checkpoint={export}" for name in ("dnli", "mnli", "faithcritic")]
    return command + [
        f"benchmark.test.{name}.{key}"
        for name in ("mnli", "begin", "faithcritic")
        for key in ("path=embedded", f"num_rows={NUM_TESTED}")
    ]


def run_recipe(recipe: Recipe, shop: Workshop) -> Result:
    """Runs all commands of a recipe until one fails; its runs are deleted behind it."""
    commands, folder = commands_of(recipe, shop), shop.run_folder(recipe)
    shutil.rmtree(folder, ignore_errors=True)
    result = Result(recipe.name, typed(commands), recipe.processes)
    result.parameters = aside(shop.prepare, recipe)
    for name, command in commands.items():
        run = folder / "run"
        log = shop.root / "logs" / f"{recipe.name}-{name.replace(' ', '-')}.log"
        kill = (lambda run=run: any(run.glob("**/checkpoints/last.ckpt"))) if name == "train" else None
        forked = recipe.processes == 1 or name not in ("train", "resume")
        ended = run_command(command, log, forked=forked, run=run, kill_when=kill)
        result.seconds[name], result.memory[name] = ended.seconds, ended.memory
        if name in ("train", "resume") and ended.step_seconds:
            result.step_seconds = ended.step_seconds[-1]
        if problem := problem_of(name, ended, run):
            result.error = f"{name}: {problem}"
            break
        if name == "resume":
            result.resumed_at = resumed_at(ended.output)
    if result.passed:
        shutil.rmtree(folder)  # gigabytes; of a failure all stays to be looked at
    result.save(shop.results)
    return result


def aside(work: Callable[..., Any], *arguments: Any) -> Any:
    """Does work in a process of its own, so that this one stays small; imports are made once for all of it."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["torch", "transformers.modeling_utils"])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(work, *arguments).result()


def memory_of_each(recipes: Sequence[Recipe]) -> dict[str, float]:
    """The GiB that each recipe's training takes at least, by its name."""
    counts = aside(count_each, sorted({recipe.weights for recipe in recipes}))
    return {recipe.name: memory_wanted(recipe, counts[recipe.weights]) for recipe in recipes}


def count_each(names: Sequence[str]) -> dict[str, int]:
    """The parameters of architectures by their names."""
    return {name: num_parameters(name) for name in names}


def memory_wanted(recipe: Recipe, parameters: int) -> float:
    """The GiB that a training takes at least: weights, gradients, moments, and what a process has besides."""
    state = 8 if "trainer.precision=bf16-true" in recipe.own else 16
    return recipe.processes * (state * parameters / 2**30 + 2.0)


def available_gib() -> float:
    """The memory that can be had without swapping."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) / 2**20


def problem_of(name: str, ended: Watched, run: Path) -> str | None:
    """Tells what went wrong with a command, if anything did."""
    if name == "train":
        if ended.code == -9 and any(run.glob("**/checkpoints/last.ckpt")):
            return None
        return "it ended before it could be killed" if ended.code == 0 else end_of(ended)
    if ended.code:
        return end_of(ended)
    if name == "resume" and resumed_at(ended.output) is None:
        return "it did not go on from a checkpoint"
    return None


def end_of(ended: Watched) -> str:
    """Tells what a command that failed said last, or that it was killed."""
    if ended.code < 0:
        return f"killed by signal {-ended.code}: too little memory, or longer than {LIMIT:.0f} s"
    return ended.last_line


def resumed_at(output: str) -> int | None:
    """The step at which a training says that it goes on."""
    words = [line.rpartition("going on at step ")[2] for line in output.splitlines() if "going on at step " in line]
    return int(words[0]) if words else None


def run_command(arguments: Sequence[str], log: Path, *, forked: bool, **options: Any) -> Watched:
    """Runs one of the scripts as a process of its own, without any hub.

    Args:
        forked: From a process that has imported already; DDP, which starts the command once more, needs a plain one.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    if forked:
        return watch(Fork(arguments, log), log=log, limit=LIMIT, **options)
    command = [sys.executable, "-W", "ignore", str(ROOT / arguments[0]), *arguments[1:]]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT), "WANDB_MODE": "offline"}
    with log.open("w") as output:
        streams: Any = {"stdout": output, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(command, env=environment, start_new_session=True, **streams)
        return watch(process, log=log, limit=LIMIT, **options)


def typed(commands: dict[str, list[str]]) -> dict[str, str]:
    """The commands as one types them."""
    return {name: " ".join(["python", *command]) for name, command in commands.items()}


def needed_weights(recipe: Recipe) -> list[str]:
    """The weights that the commands of a recipe name."""
    names = [recipe.weights]
    if recipe.metric_models:
        names += ["roberta-large", "question-generation", "question-answering"]
    if recipe.metric_models or any(argument.startswith("control=") for argument in recipe.arguments):
        names.append(NLI)
    return names
