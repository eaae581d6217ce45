"""Loads any detector of ours: by the kind that its folder names, or as a configuration or a file describes it."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faithkit.detector import Detector
from faithkit.errors import UserError
from faithkit.files.model_folder import CRITIC, JUDGE, TAGGER, find_folder, is_adapter, read_sidecar
from faithkit.weights.resolve import HUB_NAME, hub_adapters, loading
from faithkit.weights.used_model import CHECKPOINT, UsedModel, describe_model
from faithkit_workflows.settings.cascade import CascadeOptions
from faithkit_workflows.settings.detector_file import is_detector_file, read_detector_file
from faithkit_workflows.settings.sharded import RAY

if TYPE_CHECKING:  # it brings what trainings need
    from data_modules.build import Benchmark

log = logging.getLogger("faithkit")
# Where the class of each kind stands, imported when one is asked for. Its `load` takes precision and batch_tokens.
DETECTORS = {
    CRITIC: ("critic.sequence.scorer", "Critic"),
    TAGGER: ("critic.tagger.predictor", "Tagger"),
    JUDGE: ("judge.judge", "Judge"),
}
KINDS = {"ForTokenClassification": TAGGER, "ForCausalLM": JUDGE, "LMHeadModel": JUDGE}  # by how an architecture ends


@dataclass(frozen=True, slots=True)
class Loaded:
    """A detector, how origins describe its models, and what it tells at the end of a run."""

    detector: Detector
    models: list[UsedModel]
    tell: Callable[[], None] = lambda: None


def load_detector(
    checkpoint: str | None,
    *,
    precision: str,
    batch_tokens: int | None,
    labels: Mapping[int | str, str] | None = None,
    max_windows: int | None = None,
) -> Detector:
    """Loads the detector that a configuration names: a folder or a model, or a file that describes it.

    Args:
        labels: Of a critic from elsewhere, what its classes mean.
        max_windows: Windows of long knowledge that a critic or a tagger reads; None reads all.

    Raises:
        UserError: It names none, or something else.
    """
    if not checkpoint:
        hint = "checkpoint=PATH of a run, an hf/ folder or a hub name; or predictions=FILE"
        raise UserError("nothing to evaluate: neither checkpoint nor predictions is given", hint=hint)
    if is_detector_file(checkpoint):
        own = read_detector_file(checkpoint)
        others = {"precision": precision, "labels": labels, "max_windows": max_windows}
        return load_configured({"batch_tokens": batch_tokens, **others} | own).detector
    kind = kind_of(checkpoint)
    if kind not in DETECTORS:
        hint = f"give the folder of a run of a {' or '.join(DETECTORS)}"
        raise UserError(f"a checkpoint of another kind: {kind!r} is no detector", place=checkpoint, hint=hint)
    module, name = DETECTORS[kind]
    options: dict[str, Any] = {"precision": precision, "batch_tokens": batch_tokens}
    if labels is not None:
        if kind != CRITIC:
            problem = f"labels is for a critic from elsewhere, and this is a {kind}"
            raise UserError(problem, place=checkpoint, hint="leave labels out")
        options["labels"] = labels
    if max_windows is not None:
        if kind == JUDGE:
            problem = "max_windows is for critics and taggers: a judge reads its prompt whole"
            raise UserError(problem, place=checkpoint, hint="leave max_windows out")
        options["max_windows"] = max_windows
    return getattr(import_module(module), name).load(checkpoint, **options)


def load_configured(config: Mapping[str, Any], benchmark: "Benchmark | None" = None) -> Loaded:
    """Loads the detector of a configuration: `checkpoint`, `engine` with `judge`, a cascade of both, or a baseline.

    With `engine=ray` it stands in the workers of a cluster.

    A cascade has its band in the configuration: one that is yet to be chosen is
    `faithkit_workflows.benchmarks.cascade_benchmark`'s.

    Args:
        benchmark: What is judged; SelfCheckGPT may compare its rows.
    """
    if (config.get("engine") or {}).get("name") == RAY:
        from faithkit_workflows.ray.portions import load_on_cluster

        return load_on_cluster(config)
    if benchmark is not None and (config.get("selfcheck") or {}).get("measure"):
        from faithkit_workflows.detectors.prompted_baselines import load_selfcheck

        return load_selfcheck(config, benchmark)
    if (config.get("examiner") or {}).get("turns"):
        from faithkit_workflows.detectors.prompted_baselines import load_examiner

        return load_examiner(config)
    options = cascade_of(config)
    if options.is_on:
        from faithkit_workflows.detectors.cascade import Band, Cascade

        assert options.band is not None, "a file without a band is refused"
        cheap, dear = load_checkpoint(config), load_engine(config, JUDGE, benchmark)
        low, high = options.band
        cascade = Cascade(cheap.detector, dear.detector, Band(low=low, high=high))
        return Loaded(cascade, [*cheap.models, *dear.models], dear.tell)
    # Runs of older versions have none of `engine`, `labels` and `max_windows`.
    if (config.get("engine") or {}).get("name"):
        return load_engine(config, benchmark=benchmark)
    return load_checkpoint(config)


def tell_model(loaded: Loaded) -> None:
    """Says which models judge, how large they are, and what they run on."""
    from faithkit.hardware import describe_runner

    names = ", ".join(f"{model.kind or 'not ours'} {model.path}" for model in loaded.models)
    log.info("model: %s; %s", names or "none", describe_runner(loaded.detector))


def cascade_of(config: Mapping[str, Any]) -> CascadeOptions:
    """Reads the block `cascade`, which runs of older versions do not have."""
    return CascadeOptions(**(config.get("cascade") or {}))


def load_checkpoint(config: Mapping[str, Any]) -> Loaded:
    """Loads the detector that `checkpoint` names."""
    options = {name: config.get(name) for name in ("precision", "batch_tokens", "labels", "max_windows")}
    detector = load_detector(config["checkpoint"], **options)  # type: ignore[arg-type]
    return Loaded(detector, describe_detector(config["checkpoint"]))


def load_engine(config: Mapping[str, Any], role: str = CHECKPOINT, benchmark: "Benchmark | None" = None) -> Loaded:
    """Loads the judge that `engine` and `judge` name; its prompt's examples may come from the benchmark's dataset."""
    from faithkit_workflows.detectors.judging import describe_judge, load_judge, tell_usage

    judge = load_judge(config, shots_of(config, benchmark))
    return Loaded(judge, [describe_judge(config, role)], lambda: tell_usage(judge))


def shots_of(config: Mapping[str, Any], benchmark: "Benchmark | None") -> list[Any]:
    """Draws as many examples for the prompt as `judge.examples` says; none where it names a file, or nothing."""
    number = config["judge"].get("examples")
    if benchmark is None or not isinstance(number, int):
        return []
    from faithkit_workflows.detectors.few_shot import shots_for

    return shots_for(benchmark, config["benchmark"], config["judge"]["ask"], number, seed=config["seed"])


def describe_detector(path: str, role: str = CHECKPOINT) -> list[UsedModel]:
    """Describes the models of a detector for the origins of predictions: one, or those that a file names."""
    if not is_detector_file(path):
        return [describe_model(path, role)]
    config = read_detector_file(path)
    models = [describe_model(config["checkpoint"], role)] if config["checkpoint"] else []
    if config["engine"]["name"]:
        from faithkit_workflows.detectors.judging import describe_judge

        models.append(describe_judge(config, JUDGE if models and role == CHECKPOINT else role))
    return models


def kind_of(checkpoint: str) -> str:
    """Finds a key of DETECTORS: by the sidecar, else by the architecture that the weights were saved from."""
    from transformers import AutoConfig

    if is_detector_file(checkpoint):
        first = read_detector_file(checkpoint)["checkpoint"]
        return kind_of(first) if first else JUDGE
    is_hub_name = not Path(checkpoint).expanduser().exists() and HUB_NAME.fullmatch(checkpoint)
    folder = hub_adapters(checkpoint) if is_hub_name else find_folder(checkpoint)
    if folder and (sidecar := read_sidecar(folder)):
        return sidecar.kind
    if folder and is_adapter(folder):
        return JUDGE
    with loading(str(folder or checkpoint)) as source:
        architectures = AutoConfig.from_pretrained(source, trust_remote_code=False).architectures or [""]
    return next((kind for end, kind in KINDS.items() if architectures[0].endswith(end)), CRITIC)
