"""The blocks that training and prediction share: hardware, callbacks, loggers, decoding, and options as blocks."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any, TypeVar

from pydantic import Field, GetCoreSchemaHandler, create_model, model_validator
from pydantic_core import CoreSchema, core_schema

from faithkit.inference.decoding import Decoding
from faithkit.records import LABELS
from faithkit.settings.check import options_model
from faithkit.settings.types import (
    Block,
    Count,
    Hint,
    NonNegative,
    NonNegativeInt,
    OneOf,
    OpenBlock,
    Seconds,
    Switch,
    Text,
)
from faithkit.training.options import TIMEOUT_SECONDS, OptimizerOptions

Model = TypeVar("Model", bound=Block)

ACCELERATORS = ("auto", "cpu", "gpu", "cuda")
STRATEGIES = ("auto", "ddp", "fsdp", "ddp_find_unused_parameters_true")
# Lightning's, without those that need packages of their own.
TRAINING_PRECISIONS = (
    *("auto", "32-true", "bf16-mixed", "16-mixed", "bf16-true", "16-true", "64-true"),
    *("bf16", "16", "32", "64", 16, 32, 64),
)

Resamples = Annotated[int, Field(ge=1, le=10**6), Hint("use a whole number from 1 to 1000000; 1000 is usual")]
# What the classes of a critic from elsewhere mean; the critic checks which classes there are.
ClassLabels = Annotated[
    Annotated[dict[int | str, Annotated[str, OneOf(LABELS)]], Field(min_length=2)] | None,
    Hint("use labels={0: faithful, 1: hallucinated}, in quotes, or null for a critic of ours"),
]
Numbers = Annotated[list[NonNegativeInt], Field(min_length=1)]
Devices = Annotated[
    Annotated[int, Field(ge=1, le=4096)] | Annotated[Any, OneOf(("auto", -1, "-1"))] | Numbers,
    Hint("use 1 or more, auto for all, or a list of their numbers: [0,1]"),
]


def with_options(base: type[Model], options: type, name: str) -> type[Model]:
    """Adds the fields of a dataclass to a block, which then also makes the dataclass's own checks between them."""
    names = set(options_model(options).model_fields)

    def build(self: Any) -> Any:
        options(**{field: getattr(self, field) for field in names})
        return self

    validators: Any = {"build": model_validator(mode="after")(build)}
    own: Any = {n: (f.annotation, f) for n, f in options_model(options).model_fields.items()}
    return create_model(name, __base__=base, __validators__=validators, **own)


@dataclass(frozen=True, slots=True)
class AsBlock:
    """Reads a block of the configuration as a dataclass of options: `Annotated[Decoding, AsBlock()]`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def build(block: Block) -> Any:
            return source(**{name: getattr(block, name) for name in type(block).model_fields})

        written = core_schema.plain_serializer_function_ser_schema(asdict)
        block = handler.generate_schema(options_model(source))
        return core_schema.no_info_after_validator_function(build, block, serialization=written)


class Trainer(Block):
    """`trainer`: the hardware."""

    accelerator: Annotated[str, OneOf(ACCELERATORS)]
    devices: Devices
    strategy: Annotated[str, OneOf(STRATEGIES)]
    num_nodes: Count
    precision: Annotated[Any, OneOf(TRAINING_PRECISIONS)]
    num_threads: Annotated[Count | None, Hint("use 1 or more, or null to leave it to torch")]
    timeout_seconds: Seconds = TIMEOUT_SECONDS


class Callbacks(Block):
    """`callbacks`: what chooses the best checkpoint, when training stops, how often it saves."""

    monitor: Text
    mode: Annotated[str, OneOf(("max", "min"))]
    patience: Annotated[NonNegativeInt | None, Hint("use 0 or more validations, or null to never stop early")]
    save_every_seconds: NonNegative
    log_every_num_steps: Count
    progress_bar: Switch
    save_texts: Switch = True
    num_examples: NonNegativeInt
    num_resamples: Resamples


class Wandb(OpenBlock):
    """`logger.wandb`; what else WandbLogger takes may stand there too."""

    project: Text | None = None
    offline: Switch = False


class Loggers(Block):
    """`logger`: any of csv, tensorboard, wandb."""

    csv: dict[str, Any] | None = None
    tensorboard: dict[str, Any] | None = None
    wandb: Wandb | None = None


Optimizer = Annotated[OptimizerOptions, AsBlock()]
DecodingBlock = Annotated[Decoding, AsBlock()]
