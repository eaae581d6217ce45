"""Training in stages within one run: each stage starts from the best weights of the one before."""

from collections.abc import Iterator, Mapping
from typing import Any

from faithkit.errors import UserError
from faithkit.files.atomic import write_json
from faithkit.files.run_folder import RunFolder


def stages(run: RunFolder, config: Mapping[str, Any]) -> Iterator[tuple[RunFolder, dict[str, Any]]]:
    """Gives the unfinished stages of a run, each with its folder and its configuration.

    Where the data block has `first`, its values replace the block's own in a first stage, which gets a folder within
    the run's. The second stage starts from the first one's best weights, with a fresh schedule.
    """
    data = dict(config["data"])
    first = data.pop("first", None)
    if first is None:
        yield run, dict(config)
        return
    values = dict(first)
    stage = run.stage(f"stage1-{values.pop('stage')}")
    if not stage.metrics.exists():
        own = {**config, "data": {**data, **values}}
        stage.checkpoints.mkdir(parents=True, exist_ok=True)
        write_json(stage.config, own)  # JSON is YAML
        yield stage, own
    model = {**config["model"], "task": {**config["model"]["task"], "weights": str(stage.hf)}}
    yield run, {**config, "data": data, "model": model}


def check_parts(config: Mapping[str, Any]) -> None:
    """Refuses an objective or control tokens for a model without that choice.

    Raises:
        UserError: One is set for such a model.
    """
    for group in ("objective", "control"):
        if config.get(group) and group not in config["model"]["task"]:
            name = config[group]["_target_"].split(".")[-2]
            problem = f"{group}={name} does not go with model={config['model']['name']}"
            raise UserError(problem, hint=f"leave {group} out, or choose a generator: model=t5, gpt2, ...")
