"""Loads a detector that a command names: a run, an hf/ folder, a hub name, a detector file, or a language model."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from faithkit.detector import BUILT_IN, CRITIC, JUDGE, Detector, DetectorKind, detector_kinds, kind_in_name
from faithkit.errors import UserError
from faithkit.files.model_folder import find_folder, is_adapter, read_sidecar
from faithkit.inference.text import OPENAI
from faithkit.inference.text_engines import CachedEngine, EngineOptions, build_text_engine
from faithkit.provenance.used_model import CHECKPOINT, UsedModel, describe_model
from faithkit.records import Example
from faithkit.weights.resolve import hub_adapters, is_hub_name, loading
from faithkit_workflows.settings.engines import CascadeOptions, is_detector_file, read_detector_file
from judge.options import AskOptions

if TYPE_CHECKING:  # most detectors ask no language model
    from faithkit.inference.openai_engine import Usage
    from judge.questions import Asker, Question

log = logging.getLogger("faithkit")


def load_asker(
    config: Mapping[str, Any], question: "Question", shots: Sequence[Example]
) -> "tuple[Asker, Callable[[], None]]":
    """Loads the model of the block `engine` for another question, and the function that logs its usage.

    Args:
        shots: Examples in the prompt.
    """
    from judge.questions import Asker

    engine, ask = build_text_engine(EngineOptions(**config["engine"])), AskOptions(**config["judge"])
    limits: dict[str, Any] = {"written": ask.written, "max_new_tokens": ask.max_new_tokens}
    asker = Asker(engine, question, prompts=ask.prompts, shots=shots, **limits)
    return asker, lambda: log_usage(engine)


def describe_judge(config: Mapping[str, Any], role: str = CHECKPOINT) -> UsedModel:
    """Describes the judge's model for the record of where predictions come from."""
    options = EngineOptions(**config["engine"])
    assert options.model is not None, "load_engine has refused it"
    if options.name == OPENAI:
        return UsedModel(role=role, path=options.model, reason="the training data of a server's model are not known")
    return describe_model(options.model, role)


def log_usage(engine: Any) -> None:
    """Logs how many requests were sent, how many replies came from the cache, and what a server counted."""
    if isinstance(engine, CachedEngine):
        log.info("%s replies from the cache %s, %s requests", f"{engine.known:,}", engine.path, f"{engine.asked:,}")
    if (usage := usage_of(engine)) is not None:
        log.info("%s", usage)


def usage_of(engine: Any) -> "Usage | None":
    """Returns what a server's engine has counted; None for other engines."""
    found: Usage | None = getattr(engine.engine if isinstance(engine, CachedEngine) else engine, "usage", None)
    return found


@dataclass(frozen=True, slots=True)
class LoadedDetector:
    """A detector with the description of its models.

    Args:
        models: Recorded with every prediction that it makes.
        log_usage: Logs requests and costs at the end of a run.
    """

    detector: Detector
    models: list[UsedModel]
    log_usage: Callable[[], None] = lambda: None


def load_detector(
    checkpoint: str | None,
    *,
    precision: str,
    batch_tokens: int | None,
    labels: Mapping[int | str, str] | None = None,
    max_windows: int | str | None = None,
) -> Detector:
    """Loads the detector of a checkpoint: a folder, a hub name, `KIND:ARGUMENT`, or a detector file.

    Args:
        labels: The meaning of the classes of a critic that was not trained here.
        max_windows: Windows of long knowledge that are read; None reads as many as in training, `all` reads all.

    Raises:
        UserError: There is no such detector, or it does not take an option.
    """
    if not checkpoint:
        hint = "checkpoint=PATH of a run, an hf/ folder or a hub name; or predictions=FILE"
        raise UserError("nothing to evaluate: neither checkpoint nor predictions is given", hint=hint)
    options = {"precision": precision, "batch_tokens": batch_tokens, "labels": labels, "max_windows": max_windows}
    if is_detector_file(checkpoint):
        return load_described(options | read_detector_file(checkpoint)).detector
    kind, path = kind_in_name(checkpoint) or (_kind_of_folder(checkpoint), checkpoint)
    given = {
        name: value for name, value in options.items() if name not in ("labels", "max_windows") or value is not None
    }
    if unsupported := given.keys() - {"precision", "batch_tokens"} - kind.options:
        name = min(unsupported)
        takers = " or ".join(one.name for one in detector_kinds().values() if name in one.options)
        raise UserError(
            f"{name} is for a {takers}, and this is a {kind.name}", place=checkpoint, hint=f"leave {name} out"
        )
    if kind is BUILT_IN[JUDGE]:
        from judge.judge import stored_judge

        if stored_judge(path)[1] is None:
            problem = "%s is a language model that was not trained to find hallucinations"
            log.warning(f"{problem}: check its verdicts on labelled rows; `faithkit models` lists detectors", path)
    return kind.load(path, **given)


def load_described(config: Mapping[str, Any], examples: Callable[[], Sequence[Any]] | None = None) -> LoadedDetector:
    """Loads the detector of a configuration: `checkpoint`, `engine` with `judge`, or a cascade of both with its band.

    Args:
        examples: Draws the labelled examples for the judge's prompt.
    """
    options = cascade_options(config)
    if options.is_on:
        from faithkit_workflows.detectors.cascade import Band, Cascade

        assert options.band is not None, "a detector file without a band is refused"
        cheap, expensive = load_checkpoint(config), load_engine(config, JUDGE, examples)
        low, high = options.band
        cascade = Cascade(cheap.detector, expensive.detector, Band(low=low, high=high))
        return LoadedDetector(cascade, [*cheap.models, *expensive.models], expensive.log_usage)
    if (config.get("engine") or {}).get("name"):
        return load_engine(config, examples=examples)
    return load_checkpoint(config)


def load_checkpoint(config: Mapping[str, Any]) -> LoadedDetector:
    """Loads the detector that `checkpoint` names."""
    options: dict[str, Any] = {
        name: config.get(name) for name in ("precision", "batch_tokens", "labels", "max_windows")
    }
    return LoadedDetector(load_detector(config["checkpoint"], **options), describe_detector(config["checkpoint"]))


def load_engine(
    config: Mapping[str, Any], role: str = CHECKPOINT, examples: Callable[[], Sequence[Any]] | None = None
) -> LoadedDetector:
    """Loads the judge that `engine` and `judge` name.

    Args:
        examples: Draws the examples of its prompt, unless the block names a file with examples.
    """
    from judge.judge import Judge, stored_judge

    shots = examples() if examples else ()
    options, asked = EngineOptions(**config["engine"]), AskOptions(**config["judge"])
    source, settings = options.model, None
    if options.model and options.name != OPENAI:
        source, settings = stored_judge(options.model)
    engine = build_text_engine(replace(options, model=source))
    judge = Judge.trained(engine, settings, asked, shots=shots, name=str(options.model))
    if settings and judge.prompts.each != [settings.template]:
        log.warning("%s was trained with judge.ask=%s and the built-in prompt", options.model, settings.ask)
    return LoadedDetector(judge, [describe_judge(config, role)], lambda: log_usage(judge.engine))


def cascade_options(config: Mapping[str, Any]) -> CascadeOptions:
    """Reads the block `cascade`."""
    return CascadeOptions(**(config.get("cascade") or {}))


def with_threshold(
    loaded: LoadedDetector, threshold: float | None, place: str, aim: str | None = None
) -> LoadedDetector:
    """Sets the probability from which a response is labelled hallucinated; None keeps the stored threshold.

    Args:
        place: The checkpoint, as an error names it.
        aim: balanced, recall or precision, in the place of a threshold, for a detector that has one for each.

    Raises:
        UserError: The labels of this detector do not come from a threshold.
    """
    if aim is not None and threshold is None:
        detector: Any = loaded.detector
        if not hasattr(detector, "set_aim"):
            problem, hint = f"aim={aim} is for the detector default", "leave aim out, or set threshold=0.7"
            raise UserError(problem, place=place, hint=hint)
        detector.set_aim(aim)
        description = f"{detector.threshold:.4g}, aim={aim}"
        return replace(loaded, models=[replace(model, threshold=description) for model in loaded.models])
    if threshold is None:
        return loaded
    set_threshold = getattr(loaded.detector, "set_threshold", None)
    if set_threshold is None:
        problem = "threshold needs a single critic, tagger or weighing judge, and this detector has no threshold"
        raise UserError(problem, place=place, hint="leave threshold out, or set checkpoint to one of its detectors")
    try:
        set_threshold(threshold)
    except UserError as error:
        raise UserError(error.problem, place=place, hint=error.hint) from error
    description = f"{threshold:.4g}, set by the command"
    return replace(loaded, models=[replace(model, threshold=description) for model in loaded.models])


def log_models(loaded: LoadedDetector) -> None:
    """Logs which models judge, their sizes, and the hardware that they run on."""
    from faithkit.fast import describe_runner

    names = ", ".join(
        model.path if model.kind and kind_in_name(model.path) else f"{model.kind or 'external'} {model.path}"
        for model in loaded.models
    )
    log.info("model: %s; %s", names or "none", describe_runner(loaded.detector))


def describe_detector(path: str, role: str = CHECKPOINT) -> list[UsedModel]:
    """Describes the models of a detector for the record of where predictions come from."""
    if found := kind_in_name(path):
        kind, argument = found
        if kind.is_packaged:
            return [kind.describe(argument, role)]
        return [UsedModel(role=role, path=path, kind=kind.name, reason="its training data are not recorded")]
    if not is_detector_file(path):
        return [describe_model(path, role)]
    config = read_detector_file(path)
    models = [describe_model(config["checkpoint"], role)] if config["checkpoint"] else []
    if config["engine"]["name"]:
        models.append(describe_judge(config, JUDGE if models and role == CHECKPOINT else role))
    return models


def describe_helpers(paths: Mapping[str, str | None]) -> list[UsedModel]:
    """Describes the models that compute metrics or choose responses, by role."""
    return [model for role, path in paths.items() if path for model in describe_detector(path, role)]


def kind_of(checkpoint: str) -> DetectorKind:
    """Finds the kind of a checkpoint; of a detector file that of its first detector."""
    if found := kind_in_name(checkpoint):
        return found[0]
    if is_detector_file(checkpoint):
        first = read_detector_file(checkpoint)["checkpoint"]
        return kind_of(first) if first else BUILT_IN[JUDGE]
    return _kind_of_folder(checkpoint)


def _kind_of_folder(checkpoint: str) -> DetectorKind:
    """Finds the kind that faithkit.json names, else the kind of the architecture in config.json."""
    from transformers import AutoConfig

    kinds = detector_kinds()
    folder = hub_adapters(checkpoint) if is_hub_name(checkpoint) else find_folder(checkpoint)
    if folder and (sidecar := read_sidecar(folder)):
        if sidecar.kind not in kinds:
            named = [kind.name for kind in kinds.values() if not kind.passes_name]
            problem = f"{checkpoint} is a {sidecar.kind}; a {', '.join(named[:-1])} or {named[-1]} is needed"
            raise UserError(problem, hint="set checkpoint to the run of a detector")
        return kinds[sidecar.kind]
    if folder and is_adapter(folder):
        return kinds[JUDGE]
    with loading(str(folder or checkpoint)) as source:
        architectures = AutoConfig.from_pretrained(source, trust_remote_code=False).architectures or [""]
    matching = (kind for kind in kinds.values() if architectures[0].endswith(kind.architectures or ("\0",)))
    return next(matching, kinds[CRITIC])
