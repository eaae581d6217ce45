"""The block `sweep` of train.py: how the jobs of `-m` are found and carried out."""

from typing import Annotated

from pydantic import Field

from faithkit.settings.types import Block, Count, Hint, OneOf, Seed, Switch

GRID, OPTUNA = "grid", "optuna"
# Of submitit: a number, a text, the lines of slurm_setup, or the block slurm_additional_parameters.
Parameter = bool | int | float | str | list[str] | dict[str, bool | int | float | str]
JOBLIB, SLURM, LOCAL = "joblib", "submitit_slurm", "submitit_local"


class Sweep(Block):
    """`sweep`."""

    search: Annotated[str, OneOf((GRID, OPTUNA))]
    num_parallel: Annotated[int, Field(ge=1, le=10_000), Hint("use 1 or more jobs at a time")]
    launcher: Annotated[str, OneOf((JOBLIB, SLURM, LOCAL))]
    submitit: Annotated[
        dict[str, Parameter] | None, Hint("use a block of submitit's parameters: 'sweep.submitit={timeout_min: 240}'")
    ]
    num_trials: Count = 20
    sampler: Annotated[str, OneOf(("tpe", "random"))] = "tpe"
    seed: Seed = 0
    prune: Switch = False
