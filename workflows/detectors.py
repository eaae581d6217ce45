"""Loads any detector of ours, by the kind that its folder names, or as a configuration describes it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from faithkit.detector import Detector
from faithkit.errors import UserError
from faithkit.files.model_folder import CRITIC, JUDGE, TAGGER, find_folder, read_sidecar
from faithkit.weights.resolve import HUB_NAME, loading
from faithkit.weights.used_model import UsedModel, describe_model

# Where the class of each kind stands, imported when one is asked for. Its `load` takes precision and batch_tokens.
DETECTORS = {
    CRITIC: ("critic.scorer", "Critic"),
    TAGGER: ("critic.tagger.predictor", "Tagger"),
    JUDGE: ("judge.judge", "Judge"),
}


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
) -> Detector:
    """The detector that a configuration names.

    Args:
        labels: Of a critic from elsewhere, what its classes mean.

    Raises:
        UserError: It names none, or something else.
    """
    if not checkpoint:
        hint = "checkpoint=PATH of a run, an hf/ folder or a hub name; or predictions=FILE"
        raise UserError("nothing to evaluate: neither checkpoint nor predictions is given", hint=hint)
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
    return getattr(import_module(module), name).load(checkpoint, **options)


def load_configured(config: Mapping[str, Any]) -> Loaded:
    """The detector of a configuration's keys: `engine` with `judge`, or `checkpoint`."""
    # Runs of older versions have neither `engine` nor `labels`.
    if (config.get("engine") or {}).get("name"):
        from workflows.judging import describe_judge, load_judge, tell_usage

        judge = load_judge(config)
        return Loaded(judge, [describe_judge(config)], lambda: tell_usage(judge))
    options = {name: config.get(name) for name in ("precision", "batch_tokens", "labels")}
    detector = load_detector(config["checkpoint"], **options)  # type: ignore[arg-type]
    return Loaded(detector, [describe_model(config["checkpoint"])])


def kind_of(checkpoint: str) -> str:
    """A key of DETECTORS: by the sidecar, else by the architecture that the weights were saved from."""
    from transformers import AutoConfig

    is_hub_name = not Path(checkpoint).expanduser().exists() and HUB_NAME.fullmatch(checkpoint)
    folder = None if is_hub_name else find_folder(checkpoint)
    if folder and (sidecar := read_sidecar(folder)):
        return sidecar.kind
    with loading(str(folder or checkpoint)) as source:
        architectures = AutoConfig.from_pretrained(source, trust_remote_code=False).architectures or [""]
    return TAGGER if architectures[0].endswith("ForTokenClassification") else CRITIC
