"""Restricts the code that a configuration may name, and builds the objects that it names.

A configuration names a class by `_target_`, or by the name of a dataset. The names listed here are always allowed.
Other names run code of other packages, so a file alone cannot request them: the user must give the name on the command
line, in an override (`data.parts=[{_target_: my.Dataset}]`) or, to resume a run, with `extensions=[my.Dataset]`.
Callers of the Python API are not restricted.
"""

import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from pkgutil import resolve_name
from typing import Any

from faithkit.errors import UserError, shorten
from faithkit.packages import DATASETS as ENTRY_POINTS
from faithkit.packages import object_name, plugin_names

TARGETS = (
    "critic.sequence.task.CriticTask",
    "critic.tagger.task.TaggerTask",
    "generation.task.GeneratorTask",
    "judge.task.JudgeTask",
    "generation.objectives.mle.Mle",
    "generation.objectives.infonce.InfoNce",
    "generation.objectives.loss_truncation.LossTruncation",
    "generation.control.Ctrl",
    "faithkit_workflows.detectors.entailment.load_entailment",
)

DATASETS = {
    "embedded": "data_modules.embedded.corpus.Embedded",
    "everyday": "data_modules.datasets.everyday.Everyday",
    "agents": "data_modules.datasets.agents.Agents",
    "faithdial": "data_modules.datasets.faithdial.FaithDial",
    "faithcritic": "data_modules.datasets.faithdial.FaithCritic",
    "wow": "data_modules.datasets.wow.WizardOfWikipedia",
    "cmu_dog": "data_modules.datasets.cmu_dog.CmuDog",
    "topical_chat": "data_modules.datasets.topical_chat.TopicalChat",
    "begin": "data_modules.datasets.begin.Begin",
    "audit": "data_modules.datasets.audit.Audit",
    "mnli": "data_modules.datasets.nli.Mnli",
    "snli": "data_modules.datasets.nli.Snli",
    "conjnli": "data_modules.datasets.nli.ConjNli",
    "dnli": "data_modules.datasets.nli.DialogueNli",
    "decode": "data_modules.datasets.decode.Decode",
    "ragtruth": "data_modules.datasets.ragtruth.RagTruth",
    "xsum_tokens": "data_modules.datasets.xsum_tokens.XsumTokens",
    "pairs": "data_modules.datasets.pairs.Pairs",
    "halludial": "data_modules.datasets.halludial.HalluDial",
    "halueval": "data_modules.datasets.halueval.HaluEval",
    "diahalu": "data_modules.datasets.diahalu.DiaHalu",
    "aggrefact": "data_modules.datasets.claim_sets.AggreFact",
    "true_sets": "data_modules.datasets.claim_sets.TrueSets",
    "psiloqa": "data_modules.datasets.psiloqa.PsiloQa",
    "faithbench": "data_modules.datasets.faithbench.FaithBench",
    "ragtruth_plus_plus": "data_modules.datasets.ragtruth.RagTruthPlusPlus",
    "summedits": "data_modules.datasets.summedits.SummEdits",
    "wice": "data_modules.datasets.wice.Wice",
    "lettucedetect_code": "data_modules.datasets.lettucedetect.LettuceDetectCode",
    "lettucedetect_prose": "data_modules.datasets.lettucedetect.LettuceDetectProse",
    "weak_wow": "data_modules.weak.wow_pairs.WeakWow",
    "dropped_support": "data_modules.weak.dropped.DroppedSupport",
}


def check_names(config: Mapping[str, Any], named: Sequence[str], *, place: str | None = None) -> None:
    """Refuses a configuration that names code of another package which the user has not named.

    Args:
        named: Classes and datasets that the user named in this command: see `named_in`.
        place: The file of the configuration.
    """
    outsiders = plugin_names(ENTRY_POINTS) - DATASETS.keys()
    allowed = {*TARGETS, *DATASETS.values(), *named}
    found = [(key, target) for key, target in _targets(config) if target not in allowed]
    found += [(key, name) for key, name in _datasets(config) if name in outsiders and name not in named]
    if found:
        key, name = found[0]
        also = f", and {len(found) - 1} more" if len(found) > 1 else ""
        hint = f"if you trust it, name it in this command: extensions=[{name}]"
        raise UserError(f"{key} names code that is not this project's: {shorten(name)}{also}", place=place, hint=hint)


def named_in(overrides: Sequence[str], candidates: Mapping[str, Any]) -> list[str]:
    """Finds the classes and datasets of a configuration that the overrides of this command name."""
    names = {str(name) for found in (_targets(candidates), _datasets(candidates)) for _, name in found}
    return sorted(names & {name for text in _texts(overrides) for name in (text, object_name(text))})


def find_outside_code(stored: Sequence[str]) -> str | None:
    """Finds an override in a stored command that may name code of another package."""
    suspect = {"_target_", "extensions", *(plugin_names(ENTRY_POINTS) - DATASETS.keys())}
    for override in stored:
        texts = set(_texts([override]))
        if not texts or texts & suspect or any(map(object_name, texts)):
            return shorten(override)
    return None


def _texts(overrides: Sequence[str]) -> Iterator[str]:
    """Yields the parts of the keys, and every text within the values, of those overrides that can be parsed."""
    from faithkit.settings.command_line import parse_overrides, sweep_values

    for override in parse_overrides(overrides)[0]:
        key = override.key_or_group
        yield from key.split(".")
        if override.is_sweep_override():
            yield from _texts([f"{key}={value}" for value in sweep_values(override)])
            continue
        values = [override.value()]
        while values:
            value = values.pop()
            values += [*value.keys(), *value.values()] if isinstance(value, Mapping) else []
            values += value if isinstance(value, list) else []
            if isinstance(value, str):
                yield value


def _targets(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yields each `_target_` and `module:Class` with its key, at any depth; what is no text by its representation."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            here = f"{key}.{name}" if key else str(name)
            if name == "_target_" and item is not None:
                yield here, item if isinstance(item, str) else repr(item)
            else:
                yield from _targets(item, here)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _targets(item, f"{key}[{number}]")
    elif isinstance(value, str) and (name := object_name(value)):
        yield key, name


def _datasets(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yields each text that may name a dataset, with its key: `dataset: NAME`, and the names of a benchmark's sets."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            here = f"{key}.{name}" if key else str(name)
            if here == "benchmark" and isinstance(item, Mapping):
                yield f"{here}.name", str(item.get("name"))
                for group in ("datasets", "test", "train"):
                    yield from ((f"{here}.{group}", str(each)) for each in item.get(group) or ())
            elif name == "dataset" and isinstance(item, str):
                yield here, item
            yield from _datasets(item, here)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _datasets(item, f"{key}[{number}]")


def build(block: Any, **arguments: Any) -> Any:
    """Builds the object that a block's `_target_` names, nested ones first; other values are returned unchanged.

    With `_partial_: true` it returns the class or function with its arguments, not yet called. The names have been
    checked when the run was opened (`check_names`).

    Args:
        arguments: Further arguments of the class or function.
    """
    if isinstance(block, list | tuple):
        return [build(item) for item in block]
    if not isinstance(block, Mapping):
        return block
    options = {str(name): build(item) for name, item in block.items() if name not in ("_target_", "_partial_")}
    if "_target_" not in block:
        return options
    try:
        target = resolve_name(block["_target_"])
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        hint = "name it as package.module.Class, and install its package"
        raise UserError(f"cannot import {shorten(block['_target_'])}: {error}", hint=hint) from error
    options |= arguments
    if block.get("_partial_"):
        return functools.partial(target, **options)
    try:
        inspect.signature(target).bind(**options)
    except TypeError as error:
        known = ", ".join(inspect.signature(target).parameters)
        raise UserError(f"{block['_target_']}: {error}", hint=f"its options are {known}") from error
    return target(**options)
