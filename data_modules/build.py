"""From the `data` or `benchmark` block of a configuration to datasets, examples and the DataModule."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import TYPE_CHECKING, Any

from data_modules.datasets.pairs import Pairs
from data_modules.encoding.pairs import Encoder
from data_modules.negatives.source import add_negatives
from data_modules.reading.dataset import Source, read_examples
from data_modules.reading.exclude import Excluded
from data_modules.reading.rows import ReadReport
from data_modules.reading.wrappers import exclude_from
from data_modules.registry import find_dataset
from data_modules.splits import SplitPlan, unique_names, use_of
from faithkit.embedded_name import EMBEDDED, display_name
from faithkit.errors import UserError
from faithkit.records import Example

if TYPE_CHECKING:  # Lightning takes seconds, and who reads examples alone needs none
    from data_modules.data_module import DataModule

log = logging.getLogger("faithkit")


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
        options: The dataset's own.

    Raises:
        UserError: An unknown dataset, an option that it does not have, or no embedded corpus in its layout.
    """
    dataset_class = find_dataset(dataset, _target_)
    name = dataset_class.name
    for option in dataset_class.embedded_options.keys() & options.keys():
        if options[option] == EMBEDDED:
            options[option] = _embedded_path(name, dataset_class.embedded_options[option], embedded_rows)
    if dataset_class.derived_from is not None:
        options["of"] = _build_original(dataset_class.derived_from, path, options.get("of", {}), embedded_rows)
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
        hint = "set its path to the dataset's own files"
        raise UserError(f"{dataset} has no layout of the embedded corpus", place="path=embedded", hint=hint)
    log.info("%s: no path given, so the embedded corpus stands in, in its layout", dataset)
    return written_layout(layout, num_rows)


def _build_original(
    derived_from: str, path: str | None, block: Mapping[str, Any], embedded_rows: Mapping[str, int] | None
) -> Source:
    """The dataset that another one is made of: the one that `block` names, or the one that it is made of as a rule."""
    named = {} if "_target_" in block else {"dataset": derived_from}
    given = {} if path is None else {"path": path}
    return build_source(**{"embedded_rows": embedded_rows, **named, **block, **given})


Parts = Sequence[Mapping[str, Any]] | Mapping[str, Mapping[str, Any]]  # a list, or by name: variants can change one


def build_sources(
    parts: Parts,
    exclude: Sequence[Mapping[str, Any]] = (),
    negatives: Mapping[str, Any] | None = None,
    split_plan: SplitPlan | None = None,
    *,
    numbered: bool = False,
) -> list[tuple[Source, float]]:
    """The datasets of a mix with their weights, less what stands in the test sets that `exclude` names.

    Args:
        negatives: `{kinds, num, seed, weights}`, all of them optional: the examples carry negatives.
        split_plan: How official splits are divided: only examples for training get negatives, made of such examples.
        numbered: Lists of passages in tables of one's own are numbered (`with_numbers`).
    """
    excluded = read_excluded([with_numbers(test) for test in exclude] if numbered else exclude)
    sources = []
    for part in parts.values() if isinstance(parts, Mapping) else parts:
        options = dict(with_numbers(part) if numbered else part)
        weight = options.pop("weight", 1.0)
        only = options.pop("only", None)
        if not isinstance(weight, int | float) or not weight > 0:
            raise UserError(f"weight {weight!r} of {dataset_of(options)!r}", hint="use a number above 0")
        if not options.keys() & {"dataset", "_target_"}:
            raise UserError(f"a part of data.parts names no dataset: {dict(part)}", hint="{dataset: NAME, path: PATH}")
        source = build_source(**options)
        if only != "test":
            source = exclude_from(source, excluded)
            if negatives is not None:
                source = add_negatives(source, negatives, None if use_of(source, only) else split_plan)
        sources.append((source, float(weight)))
    return sources


def read_excluded(tests: Sequence[Mapping[str, Any]]) -> Excluded:
    """The knowledge and dialogues of test sets, each given as `{dataset, path, split}`; no label of them is used."""
    return Excluded.of([example for test in tests for example in read_block(test, every_row=True)])


def with_numbers(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """Has the passages of a block's table numbered, where it is one's own; other datasets write theirs themselves."""
    return {"numbered": True, **block} if block.get("dataset") == Pairs.name else block


def dataset_of(block: Mapping[str, Any]) -> str:
    """Names the dataset of a block `{dataset, path, split, ...}`, or the class that it gives instead."""
    return str(block.get("dataset") or block.get("_target_"))


def read_block(block: Mapping[str, Any], *, every_row: bool = False) -> list[Example]:
    """The rows of a block `{dataset, path, split, num_rows}`; one that cannot be read stops the run.

    Args:
        every_row: Reads those too that scoring leaves out.
    """
    options = dict(block)
    split, num_rows = options.pop("split", None), options.pop("num_rows", None)
    source = build_source(**options)
    if every_row:
        source = replace(source, **source.options_for_all_rows)
    return list(read_examples(source, split, ReadReport(), num_rows))


def build_data(data: Mapping[str, Any], encoder: Encoder, *, num_epochs: int, seed: int) -> "DataModule":
    """The DataModule of a `data` block."""
    from data_modules.data_module import DataModule
    from data_modules.shards.lanes import NUM_BUFFER_ROWS, NUM_READERS

    parts = data["parts"]
    if data["negatives"] is not None and data["streaming"]:
        problem = "data.streaming with data.negatives: negatives are made of a whole split"
        raise UserError(problem, hint="set data.streaming=false, or data.negatives=null")
    blocks = list(parts.values()) if isinstance(parts, Mapping) else parts
    split_plan = SplitPlan(
        fractions={"validation": data["validation_fraction"], "test": data["test_fraction"]},
        seed=seed,
        split=data["split"],
        fold=None if data["fold"] is None else (data["fold"], data["num_folds"]),
        num_rows=data["num_rows"],
    )
    numbered = encoder.numbers_passages
    sources = build_sources(parts, data["exclude"], data["negatives"], split_plan, numbered=numbered)
    return DataModule(
        sources,
        encoder,
        names=unique_names(part_names(parts, [source for source, _ in sources])),
        only=[block.get("only") for block in blocks],
        split_plan=split_plan,
        batch_size=data["batch_size"],
        max_tokens=data["max_tokens"],
        eval_max_tokens=data["eval_max_tokens"],
        num_epochs=num_epochs,
        num_workers=data["num_workers"],
        on_bad_row=data["on_bad_row"],
        seed=seed,
        streaming=data["streaming"],
        # Runs of older versions have no such keys.
        num_readers=data.get("num_readers", NUM_READERS),
        num_buffer_rows=data.get("num_buffer_rows", NUM_BUFFER_ROWS),
    )


def part_names(parts: Parts, sources: Sequence[Source]) -> list[str]:
    """The names of a mix's parts in reports and files: those that they were given, or the datasets' own."""
    blocks = list(parts.values()) if isinstance(parts, Mapping) else parts
    own = [str(name) for name in parts] if isinstance(parts, Mapping) else [source.name for source in sources]
    return [display_name(name, block.get("path")) for name, block in zip(own, blocks, strict=True)]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A test set: its labelled examples, and what reading did with the rows.

    Args:
        name: Of a dataset that the embedded corpus stands in for, one that says so.
    """

    name: str
    examples: list[Example]
    summary: dict[str, Any]


def datasets_of(block: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The blocks of a benchmark's datasets by name: its `datasets`, each with what the block gives to all."""
    shared = {name: value for name, value in block.items() if name != "datasets"}
    if "datasets" not in block:
        return {display_name(block["name"], block["path"]): shared}
    blocks = {name: {**shared, **own, "name": name} for name, own in block["datasets"].items()}
    return {display_name(name, one["path"]): one for name, one in blocks.items()}


def read_benchmark(block: Mapping[str, Any], *, labelled: bool = True) -> Benchmark:
    """The test set of a `benchmark` block: of its `_target_`, else of its `dataset`, else of the dataset of its name.

    Args:
        labelled: Rows without a label are left out and counted.
    """
    report = ReadReport(block["on_bad_row"])
    target = block.get("_target_")
    name = block.get("dataset", None if target else block["name"])
    source = build_source(name, block["path"], _target_=target, **block["options"])
    examples = list(read_examples(source, block["split"], report, block["num_rows"]))
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
