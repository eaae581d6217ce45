"""The recipes of `scale=paper`, each model with each objective, as a user types them, and what two steps need."""

from dataclasses import dataclass, replace
from typing import Literal

CLASSIFIERS = (
    *("begin", "faithcritic", "mnli", "snli", "conjnli", "dnli", "decode", "audit", "embedded", "transfer"),
    *("halludial", "halueval", "diahalu"),
)
TAGGERS = ("ragtruth", "suppression", "xsum_tokens", "spans", "embedded")
GENERATORS = ("faithdial", "wow", "cmu_dog", "topical_chat", "transfer_responses")
JUDGES = ("halludial", "halludial_comparative", "halueval_comparative", "meta_judging", "hallucination_rates")
PROTOCOLS = (*JUDGES[1:], "temperature_sweep")  # which ask a judge by `engine=`
HALLUDIAL = 88_113  # rows of training
FAITHDIAL, FAITHCRITIC, RAGTRUTH, WOW = 18_357, 34_000, 15_090, 83_000  # rows of training
NEGATIVES, RESPONSE = 4, 128
CONTROL = ("ctrl", "ctrl_release")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A training of the papers' scale, and the benchmarks that measure what it gives.

    Args:
        name: In the table, and of its folder.
        weights: A key of `architectures.ARCHITECTURES`: the random weights that stand for the published ones.
        arguments: What the user types beside `scale=paper` and the weights.
        task: Which rows it reads.
        max_length: The tokens that its rows must reach.
        tokens: That a training row makes the model compute on at most, for the estimate.
        num_rows: Of the published training set.
        num_epochs: Of the recipe.
        batch_size: Examples of a step here, over all processes; the recipe's own would take a CPU too long.
        processes: Of DDP; 1 for none.
        own: Overrides that two steps on a CPU need.
        benchmarks: Names of configs/benchmark.
        metric_models: The benchmarks compute BERTScore, Q2 and the critic's rate too.
        layers: Of the real model, where the one here has fewer.
        adapters: LoRA alone is trained.
    """

    name: str
    weights: str
    arguments: tuple[str, ...]
    task: Literal["critic", "tagger", "generator", "judge", "span_judge"]
    max_length: int
    tokens: int
    num_rows: int
    num_epochs: int
    batch_size: int = 2
    processes: int = 1
    own: tuple[str, ...] = ()
    benchmarks: tuple[str, ...] = ()
    metric_models: bool = False
    layers: int | None = None
    adapters: bool = False


def critic(weights: str, processes: int = 1, benchmarks: tuple[str, ...] = ("begin",)) -> Recipe:
    """The critic on FaithCritic's pairs."""
    return Recipe(
        name=f"critic-{weights}",
        weights=weights,
        arguments=("model=critic", "data=faithcritic"),
        task="critic",
        max_length=512,
        tokens=512,
        num_rows=FAITHCRITIC,
        num_epochs=10,
        processes=processes,
        benchmarks=benchmarks,
    )


def tagger(
    weights: str,
    max_length: int = 512,
    *more: str,
    batch_size: int = 2,
    processes: int = 1,
    benchmarks: tuple[str, ...] = ("ragtruth",),
) -> Recipe:
    """The tagger on RAGTruth; up to four windows of a row count."""
    return Recipe(
        name=f"tagger-{weights}",
        weights=weights,
        arguments=("model=tagger", *([f"model.max_length={max_length}"] if max_length != 512 else []), *more),
        task="tagger",
        max_length=max_length,
        tokens=max_length * (4 if max_length == 512 else 1),
        num_rows=RAGTRUTH,
        num_epochs=6,
        batch_size=batch_size,
        processes=processes,
        # Six or eight sources, two for the test and two for validation: the official split's shares leave it to chance.
        own=(
            f"data.fold=0 data.num_folds={batch_size + 2} data.validation_fraction={1 / (batch_size + 1):.3f}"
        ).split(),
        benchmarks=benchmarks,
    )


def generator(model: str, weights: str, max_length: int, on: str = "", *more: str) -> Recipe:
    """A generator on FaithDial.

    Args:
        on: An objective, or a way of control; empty for the likelihood alone.
        more: What the user types beside.
    """
    # A causal model's sequence has its answer in it; DoHA's encoder reads the history once more.
    beside = {"t5": RESPONSE, "doha": RESPONSE + max_length}.get(model, 0)
    objective = f"control={on}" if on in CONTROL else f"objective={on or 'mle'}"
    return Recipe(
        name=f"{model}-{on or 'mle'}",
        weights=weights,
        arguments=(f"model={model}", objective, *more),
        task="generator",
        max_length=max_length,
        tokens=max_length + beside + (NEGATIVES * RESPONSE if on == "infonce" else 0),
        num_rows=FAITHDIAL,
        num_epochs=10,
        # As many responses as the cutoff is a quantile of: at the second step one is left out.
        own=("objective.window=2",) if on == "loss_truncation" else (),
        benchmarks=("faithdial",),
    )


def llama(on: str = "") -> Recipe:
    """Llama 2 as a generator, with the length that HalluDial gives it."""
    recipe = generator("gpt2", "llama-2-7b", 1280, on, "model.max_length=1280")
    # Weights in half precision: 16 bytes a parameter are too many for most machines, though there are two layers.
    own = (*recipe.own, "trainer.precision=bf16-true")
    return replace(recipe, name=f"llama-{on or 'mle'}", own=own, layers=32)


def generators() -> list[Recipe]:
    """Each generator with each objective."""
    kinds = [
        ("t5", "t5-base", 512),
        ("gpt2", "gpt2", 640),
        ("dialogpt", "dialogpt-medium", 640),
        ("doha", "bart-base", 512),
    ]
    recipes = {
        recipe.name: recipe
        for on in ("", "loss_truncation", "infonce", *CONTROL)
        for recipe in (generator(*kind, on) for kind in kinds)
    }
    recipes["t5-mle"] = replace(recipes["t5-mle"], benchmarks=GENERATORS, metric_models=True)
    for name in ("gpt2-mle", "t5-infonce"):
        recipes[name] = replace(recipes[name], processes=2)
    longest = generator("gpt2", "gpt2", 1024, "", "model.max_length=1024")
    stages = generator("gpt2", "gpt2", 640, "", "data=wow_then_faithdial")
    return [
        *recipes.values(),
        replace(longest, name="gpt2-1024"),
        replace(stages, name="gpt2-two-stages", num_rows=FAITHDIAL + WOW),
        *(llama(on) for on in ("", "loss_truncation", "infonce", "ctrl")),
    ]


def judges() -> list[Recipe]:
    """HalluJudge on HalluDial, and RAGTruth's span detector with LoRA."""
    whole = Recipe(
        name="judge-llama-2-7b",
        weights="llama-2-7b",
        arguments=("model=judge", "data=halludial"),
        task="judge",
        max_length=1280,
        tokens=1280,
        num_rows=HALLUDIAL,
        num_epochs=2,
        own=("trainer.precision=bf16-true", "data.validation_fraction=0.5"),
        benchmarks=(*JUDGES, "temperature_sweep"),
        layers=32,
    )
    lora = Recipe(
        name="judge_lora-llama-2-13b",
        weights="llama-2-13b",
        arguments=("model=judge_lora", "model.ask=spans", "data=ragtruth"),
        task="span_judge",
        max_length=4096,
        tokens=4096,
        num_rows=RAGTRUTH,
        num_epochs=3,
        batch_size=1,
        own=("data.fold=0", "data.num_folds=3", "data.validation_fraction=0.5"),
        benchmarks=("ragtruth",),
        layers=40,
        adapters=True,
    )
    return [whole, lora]


RECIPES = (
    critic("roberta-large", benchmarks=CLASSIFIERS),
    critic("deberta-v3-large"),
    critic("modernbert-base", processes=2),
    tagger("roberta-large", benchmarks=TAGGERS),
    tagger("modernbert-base", 4096, processes=2),
    tagger("modernbert-large", 4096, batch_size=1),
    tagger("deberta-v3-base", 512, "model.packed=false"),
    *generators(),
    *judges(),
)
