"""Logs to Weights & Biases: one run for each training and each stage, which a resumed training continues.

Id and name are made once and kept in the run's folder. The group is the sweep, or the training in stages; the job type
is train, stage1-..., stage2 or evaluate; the tags are model=..., data=... and so on. The run of an evaluation joins the
group of its model's run. Artifacts show the lineage from data to model to evaluation; no text of the data is uploaded.
"""

import json
import logging
import os
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from faithkit.cli import SWEEP_VARIABLE
from faithkit.errors import UserError
from faithkit.files.atomic import write_json
from faithkit.files.jsonl import read_jsonl
from faithkit.files.run_folder import RunFolder
from faithkit.training.stages import LAST_STAGE, STAGE, Finished, part_name

if TYPE_CHECKING:
    from wandb import Artifact

FILE = "wandb.json"
VERDICT = ("id", "label", "score", "gold")
UPLOAD_LIMIT = 200 * 2**20  # bytes of hf/ that are uploaded by default
log = logging.getLogger("faithkit")


@dataclass(frozen=True, slots=True, kw_only=True)
class WandbNames:
    """Names stored in a run's folder; a copy of the folder on another machine continues the same W&B run.

    Args:
        model: The artifact of the run's hf/; None if there is none.
        model_digest: The digest of its content.
    """

    id: str
    name: str
    group: str | None = None
    model: str | None = None
    model_digest: str | None = None


def wandb_names(run: RunFolder, job: str) -> WandbNames:
    """Reads the names from the run's folder, or makes and writes them.

    Raises:
        UserError: The file is damaged.
    """
    path = run.path / FILE
    if path.exists():
        return _read(path)
    folder, whole = run.path.resolve().name, run.whole.resolve().name
    number = secrets.token_hex(8)  # other machines may have folders with the same name
    staged = job.startswith(STAGE)
    sweep = os.environ.get(SWEEP_VARIABLE)
    group = f"sweep-{sweep}" if sweep else None
    if group is None and staged:
        is_last = run.path == run.whole
        group = f"{whole}-{number if is_last else wandb_names(RunFolder(run.whole), LAST_STAGE).id}"
    names = WandbNames(id=number, name=f"{whole}/{job}" if staged else folder, group=group)
    write_json(path, asdict(names))
    return names


def _read(path: Path) -> WandbNames:
    try:
        names = WandbNames(**json.loads(path.read_text(encoding="utf-8")))
        if names.id and isinstance(names.id, str) and isinstance(names.name, str):
            return names
        raise ValueError("id and name must be text")
    except (ValueError, TypeError, RecursionError) as error:
        hint = f"delete {FILE}, and a new run begins at W&B"
        raise UserError(f"not the names of a W&B run: {error}", place=str(path), hint=hint) from error


def names_of_model(model: Any) -> WandbNames | None:
    """Finds the W&B run that made a model, from the path of its run or of the hf/ folder in it."""
    folder = Path(str(model)).expanduser()
    files = [place / FILE for place in (folder, folder.parent)] if folder.is_dir() else []
    return next((_read(file) for file in files if file.exists()), None)


def folder_artifact(folder: Path, name: str, metadata: Mapping[str, Any] | None = None) -> "Artifact":
    """Builds the artifact of a model's folder; its files are uploaded without a copy."""
    import wandb

    model = wandb.Artifact(name, type="model", metadata=dict(metadata or {}))
    model.add_dir(str(folder.resolve()), policy="immutable")
    return model


def model_artifact(model: str) -> "Artifact | None":
    """Finds the artifact of a model at W&B, from the names in the folder of its run."""
    names = names_of_model(model)
    if names is None or names.model is None:
        return None
    folder = Path(model).expanduser()
    hf = next((place / "hf" for place in (folder, folder.parent) if (place / "hf").is_dir()), None)
    found = folder_artifact(hf, names.model) if hf is not None else None
    if found is not None and found.digest == names.model_digest:
        return found
    log.info("W&B: %s has changed since the artifact %s, which is not listed as used", hf or folder, names.model)
    return None


def data_artifact(config: Mapping[str, Any], data: Mapping[str, Any]) -> "Artifact | None":
    """Builds the artifact of the data: fingerprints and sizes, and references to local files."""
    if not data.get("fingerprints"):
        return None
    import wandb

    block = config.get("benchmark") or config["data"]
    about = {key: data[key] for key in ("fingerprints", "sizes") if key in data}
    artifact = wandb.Artifact(f"data-{block.get('name')}", type="dataset", metadata=about)
    with artifact.new_file("data.json") as file:
        json.dump(about, file, indent=2, sort_keys=True)
    parts = [part for part in block.get("parts") or () if isinstance(part, Mapping)]
    given = [Path(str(part["path"])).expanduser() for part in (block, *parts) if part.get("path")]
    for path in dict.fromkeys(path.resolve() for path in given if path.exists()):
        artifact.add_reference(path.as_uri(), name=path.name, checksum=False)
    return artifact


class WandbRun:
    """Logs to one W&B run: curves, the configuration, and at the end test metrics, predictions and the model.

    Its data, initial weights and evaluated models are inputs of the run, so that W&B shows the lineage.

    Args:
        job: The job type.
        project: The project at W&B.
        group: None uses the sweep, or the training in stages, that the run belongs to.
        tags: Additional tags.
        artifact: Whether hf/ is uploaded as an artifact; None uploads it if it is small.
        init: Additional arguments of `wandb.init`.
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
            # wandb's telemetry only checks WANDB_MODE, and would use the network although the run is offline.
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb
        from pytorch_lightning.loggers import WandbLogger

        try:
            found = subprocess.run(["git", "remote", "get-url", "origin"], capture_output=True, text=True, timeout=10)
            # In https://NAME@... the name may also be a token, and W&B only removes passwords.
            names_account = "@" in urlsplit(found.stdout.strip()).netloc
        except (OSError, subprocess.TimeoutExpired):  # without git, W&B has no address either
            names_account = False
        self._config, self._artifact = config, artifact
        parts = {part: config[part].get("name") for part in ("model", "data", "benchmark", "scale") if config.get(part)}
        parts |= {part: part_name(config[part]) for part in ("objective", "control") if config.get(part)}
        all_tags = [f"{part}={name}"[:64] for part, name in parts.items()]  # W&B accepts 64 characters
        names, made_by = wandb_names(run, job), names_of_model(config.get("checkpoint"))
        try:
            self.run = wandb.init(
                **{"name": names.name, **init},
                id=names.id,
                project=project,
                group=group or names.group or (made_by.group if made_by else None),
                job_type=job,
                tags=list(dict.fromkeys([*all_tags, *tags])),
                dir=run.path,
                mode="offline" if offline else None,
                resume="allow",
                reinit="create_new",  # other runs of this process are not affected
                settings=wandb.Settings(quiet=True, disable_git=names_account),
            )
        except wandb.Error as error:
            hint = "wandb login, or logger.wandb.offline=true, which needs no account"
            raise UserError(f"W&B cannot begin: {error}", place="logger.wandb", hint=hint) from error
        if self.run.id != names.id:  # a W&B sweep chooses it
            write_json(run.path / FILE, asdict(replace(names, id=self.run.id)))
        # As in Lightning: curves over the optimiser's steps.
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
        # Every verdict, without texts, so that tables of two runs can be joined by id at W&B.
        for path in sorted(finished.run.predictions.glob("*.jsonl")):
            verdicts = islice(read_jsonl(path), 50_000)  # the file has all
            lines = [[row.get(name) for name in VERDICT] for row in verdicts]
            if any(label for _, label, *_ in lines):  # none if only answers were generated
                table = wandb.Table(columns=list(VERDICT), data=lines)
                self.run.log({f"test/{path.stem}/verdicts": table, "trainer/global_step": finished.step})
        sizes = {f"{name}/n": metric.n for name, metric in finished.metrics.items() if metric.n is not None}
        self.run.summary.update(finished.numbers() | sizes)
        self.run.config.update({"data_summary": finished.data}, allow_val_change=True)
        self._log_model(finished)
        weights = (self._config.get("model") or {}).get("weights")
        critic = (self._config.get("benchmark") or {}).get("critic")
        models = dict.fromkeys(str(one) for one in (weights, self._config.get("checkpoint"), critic) if one)
        # W&B finds the versions with the same content, or creates them.
        for used in filter(None, (data_artifact(self._config, finished.data), *map(model_artifact, models))):
            if self.run.offline:
                # `use_artifact` does not work offline; this has the same effect after `wandb sync`.
                self.run._log_artifact(used, is_user_created=True, use_after_commit=True)
                continue
            try:
                self.run.use_artifact(used)
            except (wandb.Error, ValueError) as error:  # the results are already logged
                log.warning("W&B: %s is not listed as used: %s", used.name, error)

    def _log_model(self, finished: Finished) -> None:
        if self._artifact is False or not finished.run.hf.is_dir():  # an evaluation has no hf/
            return
        size = sum(path.stat().st_size for path in finished.run.hf.rglob("*") if path.is_file())
        if self._artifact is None and size > UPLOAD_LIMIT:
            log.info("W&B: hf/ has %d MB and is not uploaded; logger.wandb.artifact=true uploads it", size >> 20)
            return
        weights = (self._config.get("model") or {}).get("weights")
        metadata = {
            "data": finished.data,
            "weights": weights,
            "weights_run": getattr(names_of_model(weights), "id", None),
            "metrics": {name: metric.to_dict() for name, metric in finished.metrics.items()},
        }
        name = f"{self._config['model']['name']}-{self.run.id}"
        model = folder_artifact(finished.run.hf, name, metadata)
        self.run.log_artifact(model, aliases=["best"])
        path = finished.run.path / FILE  # for runs that use the model
        write_json(path, asdict(replace(_read(path), model=name, model_digest=model.digest)))

    def close(self, exit_code: int) -> None:
        where = f"wandb sync {Path(self.run.dir).parent}" if self.run.offline else self.run.url
        self.run.finish(exit_code=exit_code)
        log.info("W&B: %s", where)
