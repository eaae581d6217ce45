"""Weights & Biases: one run for each training and each stage, which a resumed training goes on with."""

import logging
import os
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faithkit.errors import UserError
from faithkit.files.jsonl import read_jsonl
from faithkit.files.run_folder import RunFolder
from faithkit.training.loggers.results import Finished
from faithkit.training.loggers.wandb_artifacts import (
    data_artifact,
    folder_artifact,
    model_artifact,
    models_in,
    weights_of,
)
from faithkit.training.loggers.wandb_names import keep_model, names_of_model, tags_of, wandb_names

if TYPE_CHECKING:
    from wandb import Artifact

VERDICT = ("id", "label", "score", "gold")
MAX_VERDICTS = 50_000  # of a test set; its predictions file has all
UPLOAD_LIMIT = 200 * 2**20  # bytes of hf/ that are sent without being asked for
NO_ACCOUNT = "wandb login, or logger.wandb.offline=true, which needs no account"
log = logging.getLogger("faithkit")


def check_account(*, offline: bool) -> None:
    """Refuses to begin where W&B knows no account; at a terminal it asks for one.

    Raises:
        UserError: There is none.
    """
    if offline or os.environ.get("WANDB_MODE", "online") != "online":
        return
    import wandb

    try:
        wandb.login()
    except wandb.Error as error:
        raise UserError("logger=wandb needs an account at W&B, and none is known", hint=NO_ACCOUNT) from error


class WandbRun:
    """Logs to one W&B run: curves, the configuration, and at the end test metrics, predictions and the model.

    Its data and the models that it began with or measured become inputs, so that W&B shows what a figure comes from.

    Args:
        job: The job type.
        project: Where the run stands at W&B.
        group: None takes the sweep, or the training in stages, that the run belongs to.
        tags: More tags.
        artifact: Whether hf/ becomes an artifact; None does so where it is small.
        init: More arguments of `wandb.init`.
    """

    def __init__(
        self,
        run: RunFolder,
        config: Mapping[str, Any],
        job: str,
        *,
        project: str = "faithkit",
        group: str | None = None,
        tags: Sequence[str] = (),
        offline: bool = False,
        artifact: bool | None = None,
        **init: Any,
    ):
        if offline or os.environ.get("WANDB_MODE") == "offline":
            # Else wandb reports its own use over the network though the run is offline: it looks at WANDB_MODE alone.
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb
        from pytorch_lightning.loggers import WandbLogger

        self._config, self._artifact = config, artifact
        names, made_by = wandb_names(run, job), names_of_model(config.get("checkpoint"))
        try:
            self.run = wandb.init(
                **{"name": names.name, **init},
                id=names.id,
                project=project,
                group=group or names.group or (made_by.group if made_by else None),
                job_type=job,
                tags=list(dict.fromkeys([*tags_of(config), *tags])),
                dir=run.path,
                mode="offline" if offline else None,
                resume="allow",
                reinit="create_new",  # whatever else this process logs to stays as it is
                settings=wandb.Settings(quiet=True),
            )
        except wandb.Error as error:
            raise UserError(f"W&B cannot begin: {error}", place="logger.wandb", hint=NO_ACCOUNT) from error
        # As Lightning does for a run of its own: curves over the optimiser's steps.
        if made_by:
            self.run.config.update({"checkpoint_run": made_by.id}, allow_val_change=True)
        self.run.define_metric("trainer/global_step")
        self.run.define_metric("*", step_metric="trainer/global_step", step_sync=True)
        self.lightning = WandbLogger(experiment=self.run)

    def log_results(self, finished: Finished) -> None:
        import wandb

        for name, rows in finished.samples.items():
            if rows:
                columns: list[str | int] = list(rows[0])
                table = wandb.Table(columns=columns, data=[list(row.values()) for row in rows])
                self.run.log({f"test/{name}/predictions": table, "trainer/global_step": finished.step})
        self._log_verdicts(finished)
        sizes = {f"{name}/n": metric.n for name, metric in finished.metrics.items() if metric.n is not None}
        self.run.summary.update(finished.numbers() | sizes)
        self.run.config.update({"data_summary": finished.data}, allow_val_change=True)
        self._log_model(finished)
        for used in (data_artifact(self._config, finished.data), *map(model_artifact, models_in(self._config))):
            if used is not None:
                self._use(used)

    def _log_verdicts(self, finished: Finished) -> None:
        """Logs every verdict without its texts, so that tables of two runs can be joined by id at W&B."""
        import wandb

        for path in sorted(finished.run.predictions.glob("*.jsonl")):
            rows = [[row.get(name) for name in VERDICT] for row in islice(read_jsonl(path), MAX_VERDICTS)]
            if any(label for _, label, *_ in rows):  # none where answers were only written
                table = wandb.Table(columns=list(VERDICT), data=rows)
                self.run.log({f"test/{path.stem}/verdicts": table, "trainer/global_step": finished.step})

    def _use(self, artifact: "Artifact") -> None:
        """Makes an artifact an input of this run: W&B finds the version of the same content, or begins one."""
        if self.run.offline:
            # `use_artifact` refuses to work offline, though it would do the same; `wandb sync` carries it out.
            self.run._log_artifact(artifact, is_user_created=True, use_after_commit=True)
            return
        import wandb

        try:
            self.run.use_artifact(artifact)
        except (wandb.Error, ValueError) as error:  # the work is done, and its results are logged
            log.warning("W&B: %s is not named as used: %s", artifact.name, error)

    def _log_model(self, finished: Finished) -> None:
        if self._artifact is False or not finished.run.hf.is_dir():  # an evaluation has no model of its own
            return
        size = sum(path.stat().st_size for path in finished.run.hf.rglob("*") if path.is_file())
        if self._artifact is None and size > UPLOAD_LIMIT:
            log.info("W&B: hf/ has %d MB and stays here; logger.wandb.artifact=true sends it", size >> 20)
            return
        weights = weights_of(self._config)
        metadata = {
            "data": finished.data,
            "weights": weights,
            "weights_run": getattr(names_of_model(weights), "id", None),
            "metrics": {name: metric.to_dict() for name, metric in finished.metrics.items()},
        }
        name = f"{self._config['model']['name']}-{self.run.id}"
        model = folder_artifact(finished.run.hf, name, metadata)
        self.run.log_artifact(model, aliases=["best"])
        keep_model(finished.run, name, model.digest)

    def close(self, exit_code: int) -> None:
        where = f"wandb sync {Path(self.run.dir).parent}" if self.run.offline else self.run.url
        self.run.finish(exit_code=exit_code)
        log.info("W&B: %s", where)
