"""Builds the commands of a recipe: train, resume, export, and an evaluation on each benchmark."""

from pathlib import Path

from tests.paper_smoke.recipes import PROTOCOLS, Recipe
from tests.paper_smoke.workshop import NLI, NUM_TESTED, Workshop, judgements_of

# What two steps on a CPU need in every recipe, beside batch size and files.
SHORT = (
    "model.num_epochs=1",
    "callbacks.save_every_seconds=0",
    "callbacks.log_every_num_steps=1",
    "callbacks.num_examples=1",
    "callbacks.num_resamples=20",
    "callbacks.progress_bar=false",
)
LENGTHENED = {  # the benchmark whose rows are as long as the recipe reads, by task
    "critic": "faithcritic",
    "tagger": "ragtruth",
    "generator": "faithdial",
    "judge": "halludial",
    "span_judge": "ragtruth",
}
NO_METRIC_MODELS = (
    "benchmark.bert_score.encoder=null",
    "benchmark.q2.questions=null",
    "benchmark.q2.answers=null",
    "benchmark.nli=null",
)


def commands_of(recipe: Recipe, shop: Workshop) -> dict[str, list[str]]:
    """The commands of a recipe by name, in their order."""
    run, rows = shop.run_folder(recipe), shop.rows(recipe)
    weights, export = shop.weights(recipe.weights), run / "export"
    train = ["train.py", *recipe.arguments, "scale=paper", f"model.weights={weights}", *hardware(recipe)]
    train += [f"model.batch_size={recipe.batch_size}", *SHORT, *recipe.own, f"run_dir={run / 'run'}"]
    train += [f"data.path={rows}"]
    if recipe.task not in ("tagger", "span_judge"):
        rows_of_two_steps = 2 * recipe.batch_size
        # Of HalluDial's rows about half are the validation's, dialogue by dialogue.
        train += [f"data.num_rows={6 * recipe.batch_size if recipe.task == 'judge' else rows_of_two_steps}"]
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
    if name in PROTOCOLS:
        return command + protocol(name, export, rows)
    command += [f"checkpoint={export}"]
    lengthened = LENGTHENED[recipe.task]
    if name == "transfer_responses":
        names = ("cmu_dog", "topical_chat", "wow")
        command += ["benchmark.num_rows=2", *(f"benchmark.datasets.{one}.path=embedded" for one in names)]
    else:
        command += [f"benchmark.path={rows if name == lengthened else 'embedded'}"]
        command += [f"benchmark.num_rows={12 if name == 'suppression' else NUM_TESTED}"]
    if name == "suppression":
        command += ["benchmark.groups={all: null}"]  # the embedded corpus has three models of its own
    if recipe.task == "generator":
        command += metric_models(shop) if recipe.metric_models else NO_METRIC_MODELS
    return command


def protocol(name: str, export: Path, rows: Path) -> list[str]:
    """Completes a judging protocol's command: the model at hand judges and is judged, as are the rows' judgements."""
    command = ["engine=transformers", f"engine.model={export}", "engine.cache=null"]
    if name == "meta_judging":
        judgements = [f"benchmark.path={rows}", f"benchmark.judgements={judgements_of(rows)}"]
        return [*command, *judgements, "benchmark.only_hallucinated=false", "benchmark.num_rows=2"]
    command += ["benchmark.path=embedded", "benchmark.num_rows=1"]
    if name in ("hallucination_rates", "temperature_sweep"):
        command += [f"benchmark.systems={{own: {{name: transformers, model: {export}}}}}", "decoding.max_new_tokens=8"]
    if name == "temperature_sweep":
        command += ["benchmark.temperatures=[0,1]", "benchmark.plots=false"]
    return command


def metric_models(shop: Workshop) -> list[str]:
    """The models of all metrics of responses; the critic is an NLI model with its classes named.

    Answers are short: random weights write noise, Q2 asks about every name in it, and each question costs as much as an
    answer.
    """
    return [
        "decoding.max_new_tokens=8",
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


def typed(commands: dict[str, list[str]]) -> dict[str, str]:
    """The commands as one types them."""
    return {name: " ".join(["python", *command]) for name, command in commands.items()}
