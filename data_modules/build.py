"""From the `data` block of a configuration to sources and the DataModule."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from data_modules.data_module import DataModule
from data_modules.encoding.pairs import Encoder
from data_modules.exclude import Excluded, ExcludingSource
from data_modules.negatives.source import NegativesSource
from data_modules.reading.dataset import EMBEDDED, Source, read_examples
from data_modules.reading.rows import ReadReport
from data_modules.registry import SOURCES
from data_modules.splits import SplitPlan, use_of
from faithkit.errors import UserError
from faithkit.files.home import cache_dir
from faithkit.records import HALLUCINATED, Example

log = logging.getLogger("faithkit")
PATH_OPTIONS = {"audit_path": "audit"}  # further paths of a dataset, and what `embedded` means there
EMBEDDED_LAYOUTS = {"weak_wow": "wow_faithdial"}  # of datasets that are derived from another's files
MADE_OF = {"dropped_support": "ragtruth"}  # datasets made of another one, which `of` may name
EMBEDDED_ROWS = {"train": 3000, "validation": 400, "test": 1000}  # of a dataset whose path is `embedded`


def build_source(
    dataset: str, path: str | None = None, *, embedded_rows: Mapping[str, int] | None = None, **options: Any
) -> Source:
    """A dataset by name; `path=embedded` has the embedded corpus written in that dataset's official layout.

    Args:
        embedded_rows: How many examples it then has in each split; None for EMBEDDED_ROWS.

    Raises:
        UserError: An unknown dataset, or an option that it does not have.
    """
    if dataset not in SOURCES:
        raise UserError(f"unknown dataset {dataset!r}", hint=f"use one of {', '.join(sorted(SOURCES))}")
    if dataset in MADE_OF:  # of another dataset: the path is that one's
        of = {"dataset": MADE_OF[dataset], **options.get("of", {})}
        options["of"], path = build_source(**{**of, **({} if path is None else {"path": path})}), None
    if path == EMBEDDED and dataset != EMBEDDED:
        path = write_embedded(EMBEDDED_LAYOUTS.get(dataset, dataset), embedded_rows)
    for option in PATH_OPTIONS.keys() & options.keys():
        if options[option] == EMBEDDED:
            options[option] = write_embedded(PATH_OPTIONS[option])
    if path is not None and dataset != EMBEDDED:
        options["path"] = path
    try:
        return SOURCES[dataset](**options)
    except TypeError as error:
        known = ", ".join(field.name for field in fields(SOURCES[dataset]))  # type: ignore[arg-type]
        raise UserError(f"dataset {dataset}: {error}", hint=f"its options are {known}") from error


def write_embedded(dataset: str, num_rows: Mapping[str, int] | None = None) -> str:
    """The folder of the embedded corpus in a dataset's official layout, written if it is not there yet."""
    from data_modules.embedded.corpus import VERSION
    from data_modules.embedded.layouts import WRITERS

    rows = num_rows or EMBEDDED_ROWS
    folder = cache_dir("embedded", f"{dataset}-{VERSION}-{'-'.join(map(str, rows.values()))}")
    log.info("%s: no path given, so the embedded corpus stands in, in its layout", dataset)
    done = folder / ".complete"
    if not done.exists():
        WRITERS[dataset](folder, rows, seed=0)
        done.touch()
    return str(folder)


Parts = Sequence[Mapping[str, Any]] | Mapping[str, Mapping[str, Any]]  # a list, or by name: variants can change one


def build_sources(
    parts: Parts,
    exclude: Sequence[Mapping[str, Any]] = (),
    negatives: Mapping[str, Any] | None = None,
    split_plan: SplitPlan | None = None,
) -> list[tuple[Source, float]]:
    """The sources of a mix with their weights, less what stands in the test sets that `exclude` names.

    Args:
        negatives: `{kinds, num, seed, weights}`, all of them optional: the examples carry negatives.
        split_plan: Of official splits: only examples for training get negatives, and these come of such examples.
    """
    excluded = read_excluded(exclude)
    sources = []
    for part in parts.values() if isinstance(parts, Mapping) else parts:
        options = dict(part)
        weight = options.pop("weight", 1.0)
        only = options.pop("only", None)
        if not isinstance(weight, int | float) or not weight > 0:
            raise UserError(f"weight {weight!r} of {options.get('dataset')!r}", hint="use a number above 0")
        if "dataset" not in options:
            raise UserError(f"a part of data.parts names no dataset: {dict(part)}", hint="{dataset: NAME, path: PATH}")
        source = build_source(**options)
        if only != "test":
            source = with_negatives(without(source, excluded), negatives, None if use_of(source, only) else split_plan)
        sources.append((source, float(weight)))
    return sources


def read_excluded(tests: Sequence[Mapping[str, Any]]) -> Excluded:
    """The knowledge of test sets, each given as `{dataset, path, split}`; nothing else of them is used."""
    examples: list[Example] = []
    for test in tests:
        options = dict(test)
        split = options.pop("split", None)
        source = build_source(**options)
        # Rows that scoring would leave out stand in the test set all the same.
        every = {"generic": HALLUCINATED, "neutral": HALLUCINATED, "quality": "all"}
        keep = {f.name: every[f.name] for f in fields(source) if f.name in every}  # type: ignore[arg-type]
        examples += read_examples(replace(source, **keep), split, ReadReport())  # type: ignore[type-var]
    return Excluded.of(examples)


def without(source: Source, excluded: Excluded) -> Source:
    """The source less what is excluded."""
    if not excluded.keys:
        return source
    if hasattr(source, "excluded"):
        return replace(source, excluded=excluded)  # type: ignore[type-var]
    if hasattr(source, "generate"):
        raise UserError(f"data.exclude does not apply to {source.name}", hint="leave it out of data.parts")
    return ExcludingSource(source, excluded)


def with_negatives(source: Source, negatives: Mapping[str, Any] | None, split_plan: SplitPlan | None) -> Source:
    """The source with negatives, where any are wanted."""
    if negatives is None:
        return source
    known = [field.name for field in fields(NegativesSource) if field.name not in ("source", "division")]
    if unknown := set(negatives) - set(known):
        raise UserError(f"data.negatives has no option {min(unknown)!r}", hint=f"its options are {', '.join(known)}")
    return NegativesSource(source, **negatives, split_plan=split_plan)


def build_data(data: Mapping[str, Any], encoder: Encoder, *, num_epochs: int, seed: int) -> DataModule:
    """The DataModule of a `data` block."""
    parts = data["parts"]
    if data["negatives"] is not None and data["streaming"]:
        problem = "data.streaming with data.negatives: negatives are made of a whole split"
        raise UserError(problem, hint="set data.streaming=false, or data.negatives=null")
    blocks = list(parts.values()) if isinstance(parts, Mapping) else parts
    fractions = {"validation": data["validation_fraction"], "test": data["test_fraction"]}
    fold = None if data["fold"] is None else (data["fold"], data["num_folds"])
    split_plan = SplitPlan(fractions, seed, data["split"], fold, data["num_rows"])
    return DataModule(
        build_sources(parts, data["exclude"], data["negatives"], split_plan),
        encoder,
        names=list(parts) if isinstance(parts, Mapping) else None,
        only=[block.get("only") for block in blocks],
        batch_size=data["batch_size"],
        max_tokens=data["max_tokens"],
        eval_max_tokens=data["eval_max_tokens"],
        num_epochs=num_epochs,
        num_workers=data["num_workers"],
        validation_fraction=data["validation_fraction"],
        test_fraction=data["test_fraction"],
        split=data["split"],
        fold=data["fold"],
        num_folds=data["num_folds"],
        num_rows=data["num_rows"],
        on_bad_row=data["on_bad_row"],
        seed=seed,
        streaming=data["streaming"],
    )


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A test set: its labelled examples, and what reading did with the rows."""

    name: str
    examples: list[Example]
    summary: dict[str, Any]


def datasets_of(block: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The blocks of a benchmark's datasets by name: of `datasets`, each with what the block gives all, or its own."""
    shared = {name: value for name, value in block.items() if name != "datasets"}
    if "datasets" not in block:
        return {block["name"]: shared}
    return {name: {**shared, **own, "name": name} for name, own in block["datasets"].items()}


def read_benchmark(block: Mapping[str, Any], *, labelled: bool = True) -> Benchmark:
    """The test set of a `benchmark` block, whose `dataset` names the data where the benchmark is called otherwise.

    Args:
        labelled: Rows without a label are left out and counted.
    """
    report = ReadReport(block["on_bad_row"])
    source = build_source(block.get("dataset", block["name"]), block["path"], **block["options"])
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
    return Benchmark(block["name"], kept, {"counts": counts, "path": path, "rejects": report.rejects})
