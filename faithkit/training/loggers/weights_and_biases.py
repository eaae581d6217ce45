"""Weights & Biases: one run for each training and each stage, which a resumed training goes on with."""

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from faithkit.errors import UserError
from faithkit.files.run_folder import RunFolder
from faithkit.training.loggers.results import Finished
from faithkit.training.loggers.wandb_names import names_of_model, tags_of, wandb_names

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
        self.run.summary.update(finished.numbers())
        self.run.config.update({"data_summary": finished.data}, allow_val_change=True)
        self._log_model(finished)

    def _log_model(self, finished: Finished) -> None:
        import wandb

        if self._artifact is False or not finished.run.hf.is_dir():  # an evaluation has no model of its own
            return
        size = sum(path.stat().st_size for path in finished.run.hf.rglob("*") if path.is_file())
        if self._artifact is None and size > UPLOAD_LIMIT:
            log.info("W&B: hf/ has %d MB and stays here; logger.wandb.artifact=true sends it", size >> 20)
            return
        weights = self._config["model"]["task"].get("weights") or self._config["model"].get("weights")
        metadata = {
            "data": finished.data,
            "weights": weights,
            "weights_run": getattr(names_of_model(weights), "id", None),
            "metrics": {name: metric.to_dict() for name, metric in finished.metrics.items()},
        }
        model = wandb.Artifact(f"{self._config['model']['name']}-{self.run.id}", type="model", metadata=metadata)
        model.add_dir(str(finished.run.hf.resolve()), policy="immutable")  # sent from where it is, without a copy
        self.run.log_artifact(model, aliases=["best"])

    def close(self, exit_code: int) -> None:
        where = f"wandb sync {Path(self.run.dir).parent}" if self.run.offline else self.run.url
        self.run.finish(exit_code=exit_code)
        log.info("W&B: %s", where)
