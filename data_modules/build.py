"""From the `data` or `benchmark` block of a configuration to datasets, examples and the DataModule.

Datasets have names, also those of other packages.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from inspect import signature
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from data_modules.data_options import ROWS, USER_TABLE, DataOptions
from data_modules.encoding.encoder import Encoder
from data_modules.reading.dataset import Source, exclude_from, read_drawn_examples
from data_modules.reading.exclude import Excluded
from data_modules.reading.rows import ReadReport
from data_modules.splits import MixPart, SplitPlan
from faithkit.errors import UserError
from faithkit.packages import DATASETS as ENTRY_POINTS
from faithkit.records import Example
from faithkit.settings.config_files import EMBEDDED, display_name
from faithkit.targets import DATASETS

log = logging.getLogger("faithkit")


def find_dataset(name: str | None, target: str | None = None) -> type[Source]:
    """Returns the class of a dataset.

    Args:
        name: One of DATASETS, or an entry point that an installed package declares in the group `faithkit.datasets`.
        target: The importable name of a class, `package.module.Class`, in the place of a name.

    Raises:
        UserError: There is no such dataset, it cannot be imported, or it is not a `Source`.
    """
    if target is not None:
        if name is not None:
            raise UserError(f"both dataset {name!r} and _target_ {target!r} are given", hint="leave one of them out")
        place = target
    elif name in DATASETS:
        ours: type[Source] = resolve_name(DATASETS[name])
        return ours
    else:
        from importlib.metadata import entry_points

        place = next((one.value for one in entry_points(group=ENTRY_POINTS) if one.name == name), "")
        if not place:
            known = f"use one of {', '.join(sorted(DATASETS))}"
            hint = f"{known}; or the importable name of a class: _target_=package.module.Class"
            raise UserError(f"unknown dataset {name!r}", hint=hint)
    try:
        found = resolve_name(place)
    except Exception as error:  # its module may raise anything
        hint = "install its package, and name the class as package.module.Class"
        raise UserError(f"cannot import the dataset {place!r}: {error}", hint=hint) from error
    if not (isinstance(found, type) and issubclass(found, Source)):
        hint = "give a class that inherits from data_modules.reading.dataset.Source"
        raise UserError(f"{place!r} is not a dataset: {found!r}", hint=hint)
    if not found.name:
        raise UserError(f"the dataset {place!r} has no name", hint='set name: ClassVar[str] = "..." in its class')
    if not found.official_files and found.files is Source.files:
        raise UserError(f"the dataset {place!r} has no files", hint="define official_files or files in its class")
    if missing := sorted(found.__abstractmethods__):
        raise UserError(f"the dataset {place!r} has no {', '.join(missing)}", hint="define it in its class")
    return found


if TYPE_CHECKING:  # Lightning takes seconds, and who reads examples alone needs none
    from data_modules.data_module import DataModule


def build_source(
    dataset: str | None = None,
    path: str | None = None,
    *,
    embedded_rows: Mapping[str, int] | None = None,
    _target_: str | None = None,
    **options: Any,
) -> Source:
    """Builds a dataset; `path=embedded` has the embedded corpus written in that dataset's official layout.

    Args:
        dataset: Its name: one of ours, or an entry point of an installed package.
        embedded_rows: How many examples the embedded corpus has in each split; None for thousands.
        _target_: In the place of a name: the importable name of a class that is a `Source`.
        options: Those of the dataset.

    Raises:
        UserError: An unknown dataset, an option that it does not have, or no embedded corpus in its layout.
    """
    dataset_class = find_dataset(dataset, _target_)
    name = dataset_class.name
    for option in dataset_class.embedded_options.keys() & options.keys():
        if options[option] == EMBEDDED:
            options[option] = _embedded_path(name, dataset_class.embedded_options[option], embedded_rows)
    if dataset_class.derived_from is not None:
        # The dataset that another one is made from: the one that `of` names, or the default one.
        block = options.get("of", {})
        named = {} if "_target_" in block else {"dataset": dataset_class.derived_from}
        given = {} if path is None else {"path": path}
        options["of"] = build_source(**{"embedded_rows": embedded_rows, **named, **block, **given})
    elif path is not None and not dataset_class.generated:
        is_embedded = path == EMBEDDED
        options["path"] = _embedded_path(name, dataset_class.embedded_layout, embedded_rows) if is_embedded else path
    try:
        return dataset_class(**options)
    except TypeError as error:
        known = ", ".join(signature(dataset_class).parameters)
        raise UserError(f"dataset {name}: {error}", hint=f"its options are {known}") from error


def _embedded_path(dataset: str, layout: str | None, num_rows: Mapping[str, int] | None) -> str:
    from data_modules.embedded.layouts import written_layout

    if layout is None:
        hint = "set its path to the files of the dataset"
        raise UserError(f"{dataset} has no layout of the embedded corpus", place="path=embedded", hint=hint)
    log.info("%s: no path given, so the embedded corpus is used in its layout", dataset)
    return written_layout(layout, num_rows)


Parts = Sequence[Mapping[str, Any]] | Mapping[str, Mapping[str, Any]]  # a list, or by name: variants can change one


def build_mix(
    parts: Parts,
    exclude: Sequence[Mapping[str, Any]] = (),
    negatives: Mapping[str, Any] | None = None,
    split_plan: SplitPlan | None = None,
    *,
    numbered: bool = False,
) -> list[MixPart]:
    """Builds the datasets of a mix, without the knowledge and dialogues of the test sets in `exclude`.

    Args:
        negatives: `{kinds, num, seed, weights}`, all of them optional: the examples carry negatives.
        split_plan: How official splits are divided: only examples for training get negatives, made of such examples.
        numbered: Lists of passages in users' tables are numbered (`with_numbers`).
    """
    excluded = read_excluded([with_numbers(test) for test in exclude] if numbered else exclude)
    mix = []
    for name, part in _named_parts(parts):
        options = dict(with_numbers(part) if numbered else part)
        weight = options.pop("weight", 1.0)
        only = options.pop("only", None)
        if not isinstance(weight, int | float) or not weight > 0:
            raise UserError(f"weight {weight!r} of {dataset_of(options)!r}", hint="use a number above 0")
        if not options.keys() & {"dataset", "_target_"}:
            raise UserError(f"a part of data.parts names no dataset: {dict(part)}", hint="{dataset: NAME, path: PATH}")
        source = build_source(**options)
        name = display_name(name or source.name, options.get("path"))
        made = MixPart(source, float(weight), name, only)
        if only != "test":
            source = exclude_from(source, excluded)
            if negatives is not None:
                from data_modules.negatives.make import add_negatives  # few runs need it

                source = add_negatives(source, negatives, None if made.only else split_plan)
        mix.append(replace(made, source=source))
    return mix


def _named_parts(parts: Parts) -> Sequence[tuple[str | None, Mapping[str, Any]]]:
    return list(parts.items()) if isinstance(parts, Mapping) else [(None, part) for part in parts]


def read_excluded(tests: Sequence[Mapping[str, Any]]) -> Excluded:
    """Returns the knowledge and dialogues of test sets, each given as `{dataset, path, split}`; no label is used."""
    return Excluded.of([example for test in tests for example in read_block(test, every_row=True)])


def with_numbers(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """Numbers the passages in the block of a user's table; other datasets write theirs themselves."""
    return {"numbered": True, **block} if block.get("dataset") == USER_TABLE else block


def dataset_of(block: Mapping[str, Any]) -> str:
    """Names the dataset of a block `{dataset, path, split, ...}`, or the class that it gives instead."""
    return str(block.get("dataset") or block.get("_target_"))


def read_block(block: Mapping[str, Any], *, every_row: bool = False, seed: int = 0) -> list[Example]:
    """Returns the rows of a block `{dataset, path, split, num_rows}`; one that cannot be read stops the run.

    Args:
        every_row: Reads those too that scoring leaves out.
        seed: Draws `num_rows`.
    """
    options = dict(block)
    split, num_rows = options.pop("split", None), options.pop("num_rows", None)
    source = build_source(**options)
    if every_row:
        source = source.with_all_rows()
    return read_drawn_examples(source, split, ReadReport(), num_rows=num_rows, seed=seed)


def build_data(data: Mapping[str, Any], encoder: Encoder, *, num_epochs: int, seed: int) -> "DataModule":
    """Builds the DataModule of a `data` block."""
    from data_modules.data_module import DataModule

    if data["negatives"] is not None and data["streaming"]:
        problem = "data.streaming with data.negatives: negatives are made from a whole split"
        raise UserError(problem, hint="set data.streaming=false, or data.negatives=null")
    split_plan = SplitPlan(
        fractions={"validation": data["validation_fraction"], "test": data["test_fraction"]},
        seed=seed,
        split=data["split"],
        fold=None if data["fold"] is None else (data["fold"], data["num_folds"]),
        num_rows=data["num_rows"],
        by_rows=data["split_by"] == ROWS,
    )
    numbered = encoder.numbers_passages
    mix = build_mix(data["parts"], data["exclude"], data["negatives"], split_plan, numbered=numbered)
    names = {option.name for option in fields(DataOptions)} - {"num_epochs", "seed"}
    options = DataOptions(**{name: data[name] for name in names}, num_epochs=num_epochs, seed=seed)
    return DataModule(mix, encoder, options, split_plan)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A test set: its labelled examples, and what reading did with the rows.

    Args:
        name: Of the dataset; it shows if the embedded corpus replaces it.
    """

    name: str
    examples: list[Example]
    summary: dict[str, Any]


def datasets_of(block: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the blocks of a benchmark's datasets by name: its `datasets`, each with the shared options."""
    shared = {name: value for name, value in block.items() if name != "datasets"}
    if "datasets" not in block:
        return {display_name(block["name"], block["path"]): shared}
    blocks = {name: {**shared, **options, "name": name} for name, options in block["datasets"].items()}
    return {display_name(name, one["path"]): one for name, one in blocks.items()}


def read_benchmark(block: Mapping[str, Any], *, labelled: bool = True, seed: int = 0) -> Benchmark:
    """Returns the test set of a `benchmark` block: its `_target_`, else its `dataset`, else its name.

    Args:
        labelled: Rows without a label are left out and counted.
        seed: Draws `num_rows`.
    """
    report = ReadReport(block["on_bad_row"], "benchmark.")
    target = block.get("_target_")
    name = block.get("dataset", None if target else block["name"])
    source = build_source(name, block["path"], _target_=target, **block["options"])
    examples = read_drawn_examples(source, block["split"], report, num_rows=block["num_rows"], seed=seed)
    kept = [example for example in examples if example.label is not None or not labelled]
    if len(kept) < len(examples):
        report.count("unlabelled, not scored", len(examples) - len(kept))
    counts = dict(report.counts)
    log.info("%s: %s", block["name"], ", ".join(f"{name} {count:,}" for name, count in counts.items()))
    if not kept:
        raise UserError(
            f"{block['name']}: no example has a label", place=source.path, hint="choose another benchmark.split"
        )
    path = "embedded" if block["path"] == EMBEDDED else source.path
    return Benchmark(
        display_name(block["name"], block["path"]), kept, {"counts": counts, "path": path, "rejects": report.rejects}
    )


def read_generation_inputs(data: Mapping[str, Any], *, seed: int = 0) -> dict[str, list[Example]]:
    """Reads the examples that a generator answers, labelled or not, by the name of their part in a `data` block.

    They come from `data.split`, or from the test split; `num_rows` are drawn of each part by the seed.
    """
    examples: dict[str, list[Example]] = {}
    for name, part in _named_parts(data["parts"]):
        source = build_source(**{key: value for key, value in part.items() if key not in ("weight", "only")})
        name = display_name(name or source.name, part.get("path"))
        if name in examples:
            raise UserError("two parts of data.parts have the same dataset", hint="give the parts names: {NAME: {...}}")
        report = ReadReport(data["on_bad_row"])
        examples[name] = read_drawn_examples(source, data["split"], report, num_rows=data["num_rows"], seed=seed)
        log.info("%s: %s", name, ", ".join(f"{outcome} {count:,}" for outcome, count in report.counts.items()))
    return examples
