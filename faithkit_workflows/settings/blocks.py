"""The keys and blocks that several scripts share: paths, data, hardware, callbacks, loggers."""

from typing import Annotated, Any, ClassVar

from pydantic import Field

from data_modules.data_options import NEGATIVE_KINDS, NUM_BUFFER_ROWS, NUM_READERS, ROWS, SPLIT_BY
from data_modules.reading.dataset import SPLITS
from faithkit.detector import DETECTORS
from faithkit.languages import ON_LANGUAGE
from faithkit.records import LABELS
from faithkit.settings import types
from faithkit.settings.check import ScriptSettings
from faithkit.training.training_options import TIMEOUT_SECONDS
from faithkit_workflows.settings import preflight

ACCELERATORS = ("auto", "cpu", "gpu", "cuda")
STRATEGIES = ("auto", "ddp", "fsdp", "ddp_find_unused_parameters_true")


def checkpoint_of(*kinds: str) -> types.Preflight:
    """Marks a key that names a checkpoint of one of these kinds."""

    def check(key: str, path: str) -> Any:
        from faithkit_workflows.settings.engines import check_checkpoint

        return check_checkpoint(key, path, *kinds)

    return types.Preflight(check)


DetectorPath = Annotated[types.PathText | None, checkpoint_of(*DETECTORS)]
RequiredGenerator = Annotated[types.PathText, checkpoint_of("generator")]
InputFile = Annotated[types.PathText | None, types.Preflight(preflight.check_file)]
OutputFile = Annotated[types.PathText | None, types.Preflight(preflight.check_output_file)]
Folder = Annotated[types.PathText | None, types.Hint("use a folder's path; a name that is a number is written ./5")]
OutputFolder = Annotated[Folder, types.Preflight(preflight.check_output_folder)]
Weights = Annotated[types.Text | None, types.Preflight(preflight.check_weights)]
DetectorPrecision = Annotated[str, types.OneOf(types.DETECTOR_PRECISIONS), types.Preflight(preflight.check_precision)]
Plots = Annotated[types.Switch, types.Preflight(preflight.check_plots)]

Length = Annotated[types.Tokens | None, types.OrNull("for what the model was trained with")]
BatchTokens = Annotated[types.Count | None, types.OrNull("for what suits the device")]
BatchSize = Annotated[types.Count | None, types.OrNull("with data.max_tokens")]
MaxWindows = Annotated[
    types.Count | Annotated[Any, types.OneOf(("all",))] | None,
    types.Hint("use a number, all, or null for what the model was trained with"),
]
Names = Annotated[list[types.Text] | None, types.Hint("use a list of names, [high-overlap,entailed], or null")]
BestOf = Annotated[int, types.Range(ge=1, le=10_000)]
NumRows = Annotated[types.Count | None, types.OrNull("for all")]
OnLanguage = Annotated[str, types.OneOf(ON_LANGUAGE)]
OnBadRow = Annotated[str, types.OneOf(("stop", "skip"))]
Split = Annotated[types.Text | None, types.OrNull("for the official ones")]
Resamples = Annotated[int, types.Range(ge=1, le=10**6)]
DatasetOptions = dict[str, Any]  # which the dataset checks
EmbeddedRows = Annotated[
    dict[Annotated[str, types.OneOf(SPLITS)], types.NonNegativeInt] | None,
    types.Hint("use {train: N, validation: N, test: N}, or null for thousands"),
]
# The meaning of the classes of a critic from elsewhere; the critic checks which classes there are.
ClassLabels = Annotated[
    Annotated[dict[int | str, Annotated[str, types.OneOf(LABELS)]], Field(min_length=2)] | None,
    types.Hint("use labels={0: faithful, 1: hallucinated}, in quotes, or null for a critic of faithkit"),
]


class Script(ScriptSettings):
    """Keys of every script, or, of `fast`, of those that run models."""

    debug: types.Switch = False
    fast: types.Switch = True


class RunScript(Script):
    """Keys of scripts that work in a run's folder."""

    seed: types.Seed
    run_dir: OutputFolder = None
    resume: Folder = None


class ExtensibleScript(RunScript):
    """Keys of scripts that build datasets or tasks, also those of other packages."""

    extensions: Annotated[
        list[types.Text], types.Hint("use a list of class names or dataset names: extensions=[my_package.MyData]")
    ] = Field(default_factory=list)


class Trainer(types.Block):
    """`trainer`: the hardware."""

    accelerator: Annotated[str, types.OneOf(ACCELERATORS), types.Preflight(preflight.check_accelerator)]
    devices: Annotated[
        Annotated[int, types.Range(ge=1, le=4096)]
        | Annotated[Any, types.OneOf(("auto", -1, "-1"))]
        | Annotated[list[types.NonNegativeInt], Field(min_length=1)],
        types.Hint("use 1 or more, auto for all, or a list of their numbers: [0,1]"),
    ]
    strategy: Annotated[str, types.OneOf(STRATEGIES)]
    num_nodes: types.Count
    # Lightning's, without those that need further packages.
    precision: Annotated[
        Any,
        types.OneOf(
            (
                *("auto", "32-true", "bf16-mixed", "16-mixed", "bf16-true", "16-true", "64-true"),
                *("bf16", "16", "32", "64", 16, 32, 64),
            )
        ),
    ]
    num_threads: Annotated[types.Count | None, types.OrNull("to leave it to torch")]
    timeout_seconds: types.Seconds = TIMEOUT_SECONDS


class Callbacks(types.Block):
    """`callbacks`: what chooses the best checkpoint, when training stops, how often it saves."""

    monitor: types.Text
    mode: Annotated[str, types.OneOf(("max", "min"))]
    patience: Annotated[types.NonNegativeInt | None, types.OrNull("to never stop early")]
    save_every_seconds: types.NonNegative
    log_every_num_steps: types.Count
    progress_bar: types.Switch
    save_texts: types.Switch = True
    num_examples: types.NonNegativeInt
    num_resamples: Resamples


class Wandb(types.OpenBlock):
    """`logger.wandb`, with further arguments of WandbLogger."""

    project: types.Text | None = None
    offline: types.Switch = False


class LoggerBlocks(types.Block):
    """`logger`: any of csv, tensorboard, wandb."""

    csv: dict[str, Any] | None = None
    tensorboard: dict[str, Any] | None = None
    wandb: Wandb | None = None


Loggers = Annotated[LoggerBlocks, types.Preflight(preflight.check_loggers)]


class NamedDataset(types.OpenBlock):
    """A dataset by its name or its class, with options that the dataset checks."""

    title: ClassVar[str] = "a dataset"
    dataset: types.Text | None = None
    target: types.Text | None = Field(None, alias="_target_")
    path: types.PathText | None = None

    conflicts = (
        types.Conflict(
            lambda s: s.dataset is None and s.target is None,
            "{s.title} names no dataset",
            "{{dataset: NAME, path: PATH}}",
        ),
    )


class Part(NamedDataset):
    """A dataset of `data.parts`."""

    title: ClassVar[str] = "a part of data.parts"
    embedded_rows: EmbeddedRows = None
    weight: types.Positive = 1.0
    only: Annotated[Any, types.OneOf(("train", "test", None))] = None


class ExcludedSet(NamedDataset):
    """A test set of `data.exclude`."""

    title: ClassVar[str] = "a test set of data.exclude"
    path: types.PathText
    split: Split = None


class LabelledSet(ExcludedSet):
    """Labelled rows of `benchmark.fit_on` or `benchmark.judge_labels`."""

    title: ClassVar[str] = "a set of labelled rows"
    num_rows: NumRows = None


Parts = Annotated[
    Any,
    types.Variants(
        lambda value: {list: list[Part], dict: dict[str, Part]}.get(type(value)),
        "use a list of {dataset: NAME, path: PATH}, or such blocks by name",
    ),
]


class Negatives(types.Block):
    """`data.negatives`."""

    kinds: Annotated[list[str], types.SomeOf(NEGATIVE_KINDS)] | None = None
    num: types.Count = 4
    seed: types.Seed = 0
    weights: types.Text = "spacy-sm"


class FirstStage(types.OpenBlock):
    """`data.first`: the name of a first training, and the values that replace those of the block `data` in it."""

    stage: types.Text
    path: types.PathText | None = None
    embedded_rows: EmbeddedRows = None
    num_rows: NumRows = None
    parts: Parts | None = None


class Data(types.OpenBlock):
    """`data`: where examples come from, how they are divided, and how they become batches.

    Some datasets have further keys here.
    """

    name: types.Text
    path: types.PathText | None
    embedded_rows: EmbeddedRows
    split: Split
    num_rows: NumRows
    on_bad_row: OnBadRow
    validation_fraction: types.PartialShare
    test_fraction: types.PartialShare
    split_by: Annotated[str, types.OneOf(SPLIT_BY)]
    fold: Annotated[types.NonNegativeInt | None, types.OrNull("for the usual split")]
    num_folds: Annotated[int, types.Range(ge=2, le=10**6)]
    exclude: list[ExcludedSet]
    negatives: Negatives | None
    batch_size: BatchSize
    max_tokens: types.Count | None
    eval_max_tokens: types.Count
    num_workers: Annotated[int, types.Range(ge=0, le=1024)]
    streaming: types.Switch
    num_readers: types.Count = NUM_READERS
    num_buffer_rows: types.Count = NUM_BUFFER_ROWS
    parts: Parts
    first: FirstStage | None = None
    # Sizes of the embedded corpus, also here so that the command line can set them.
    num_train: types.Count = 1
    num_validation: types.Count = 1
    num_test: types.Count = 1
    corpus_seed: types.Seed = 0

    conflicts = (
        types.Conflict(
            lambda s: not s.parts, "data.parts is empty", "name a dataset: data.parts=[{{dataset: NAME, path: PATH}}]"
        ),
        types.Conflict(
            lambda s: s.fold is not None and s.fold >= s.num_folds,
            "data.fold is {s.fold}, data.num_folds {s.num_folds}",
            "use a fold from 0 to num_folds - 1",
        ),
        types.Conflict(
            lambda s: s.validation_fraction + s.test_fraction >= 1,
            "data.validation_fraction is {s.validation_fraction}, data.test_fraction {s.test_fraction}",
            "lower them: nothing would be left to train on",
        ),
        types.Conflict(
            lambda s: s.split_by == ROWS and (s.streaming or s.fold is not None),
            "data.split_by is rows, and folds and streams are divided by group",
            "set data.split_by=group",
        ),
        # Negatives are made from a whole split.
        types.excludes("data.streaming", "data.negatives", "set data.streaming=false, or data.negatives=null"),
    )
