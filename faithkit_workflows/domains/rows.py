"""Reads the rows of a domain, and divides them into two halves: one to choose by, one for the end."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from data_modules.build import build_source
from data_modules.encoding.cache import group_hash
from data_modules.reading.dataset import read_examples
from data_modules.reading.files import EMBEDDED
from data_modules.reading.rows import ReadReport
from data_modules.splits import divide_groups
from faithkit.errors import UserError
from faithkit.records import Example
from faithkit_workflows.domains.definition import JOINED, Domain

DEV, HELD, ALL = PARTS = ("dev", "held", "all")
HALF, SEED = 0.5, 17  # fixed: with others, rows that were kept for the end would have been looked at
EMBEDDED_ROWS = {"train": 60, "validation": 60, "test": 60}
log = logging.getLogger("faithkit")


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a domain, each as its corpus has it and as every system reads it; ids are `DOMAIN/SOURCE/SPLIT/ID`.

    Args:
        originals: As the corpus has them; what a model has seen is known by these.
        shown: With the history joined to the knowledge where the domain says so.
    """

    originals: tuple[Example, ...] = ()
    shown: tuple[Example, ...] = ()

    def __len__(self) -> int:
        return len(self.shown)

    def take(self, places: Sequence[int]) -> "Rows":
        """Takes the rows at these places."""
        return Rows(tuple(self.originals[i] for i in places), tuple(self.shown[i] for i in places))

    def capped(self, limit: int | None) -> "Rows":
        """Takes up to so many rows: whole groups in the order of their hashes, so that more rows only add some."""
        if limit is None or len(self) <= limit:
            return self
        hashes = np.array([group_hash(example.group) for example in self.shown], np.uint64)
        groups, place, size = np.unique(hashes, return_inverse=True, return_counts=True)
        fits = np.cumsum(size) <= limit
        fits[0] = True  # one group at least, however large
        assert len(groups)
        return self.take(np.flatnonzero(fits[place]).tolist())


@dataclass(frozen=True, slots=True)
class DomainRows:
    """The labelled rows of a domain.

    Args:
        halves: The rows that may be tested: `dev` and `held`.
        fit_only: Rows that nothing is tested on.
    """

    domain: Domain
    halves: Mapping[str, Rows]
    fit_only: Rows

    def part(self, name: str) -> Rows:
        """The tested rows of a part: dev, held, or all."""
        limit = self.domain.max_rows
        if name != ALL:
            return self.halves[name].capped(limit)
        return joined([self.part(half) for half in (DEV, HELD)])

    def to_fit(self) -> Rows:
        """The rows that models of other domains may learn from: never those of the held half."""
        return joined([self.halves[DEV], self.fit_only])


def joined(parts: Sequence[Rows]) -> Rows:
    """Joins rows, one part behind the other."""
    return Rows(
        tuple(row for part in parts for row in part.originals), tuple(row for part in parts for row in part.shown)
    )


def read_domain(domain: Domain, root: str, *, on_bad_row: str = "stop") -> DomainRows:
    """Reads the labelled rows of a domain.

    Args:
        root: The folder that the paths of its sources lie in, or `embedded`.

    Raises:
        UserError: Files are missing, a row is bad, or nothing is left.
    """
    tested: list[Rows] = []
    fitted: list[Rows] = []
    for number, block in enumerate(domain.sources):
        (fitted if block.get("fit_only") else tested).append(_read_source(domain, number, block, root, on_bad_row))
    rows = joined(tested)
    if not len(rows):
        hint = f"choose other domains: benchmark.only=[...] without {domain.name}"
        raise UserError(f"benchmark.domains.{domain.name}: no labelled row is left", place=root, hint=hint)
    hashes = np.array([group_hash(example.group) for example in rows.shown], np.uint64)
    divided = divide_groups(hashes, {HELD: HALF}, SEED)
    halves = {HELD: rows.take(divided[HELD].tolist()), DEV: rows.take(divided["train"].tolist())}
    log.info("%s: %s rows, %s of them held", domain.name, f"{len(rows):,}", f"{len(halves[HELD]):,}")
    return DomainRows(domain, halves, joined(fitted))


def _read_source(domain: Domain, number: int, block: Mapping[str, Any], root: str, on_bad_row: str) -> Rows:
    options = {name: value for name, value in block.items() if name not in ("splits", "where", "fit_only")}
    inside = str(options.pop("path", ""))
    if root == EMBEDDED:
        source = build_source(**options, path=EMBEDDED, embedded_rows=EMBEDDED_ROWS)
    else:
        source = build_source(**options, path=f"{root.rstrip('/')}/{inside}")
    report = ReadReport(on_bad_row)
    splits = [name for name in source.split_names() if name in block.get("splits", source.split_names())]
    where = block.get("where") or {}
    found = [
        example
        for split in splits
        for example in read_examples(source, split, report)
        if example.label is not None and all(example.meta.get(key) == value for key, value in where.items())
    ]
    if domain.max_length_gap is not None:
        found = of_like_length(found, domain.max_length_gap)
    # Ids are unique within a split of a source alone.
    prefix = f"{domain.name}/{number}-{source.name}"
    named = [replace(example, id=f"{prefix}/{example.split}/{example.id}") for example in found]
    shown = [join_history(example) if domain.history == JOINED else example for example in named]
    return Rows(tuple(named), tuple(shown))


def of_like_length(examples: Sequence[Example], max_gap: int) -> list[Example]:
    """Keeps the pairs whose responses differ by at most so many words; `meta["pair"]` names a row's pair."""
    lengths: dict[Any, list[int]] = {}
    for example in examples:
        lengths.setdefault(example.meta.get("pair"), []).append(len(example.response.split()))
    return [
        example
        for example in examples
        if len(own := lengths[example.meta.get("pair")]) == 2 and abs(own[0] - own[1]) <= max_gap
    ]


def join_history(example: Example) -> Example:
    """Puts what was said before in front of the knowledge, a line each, and leaves no history."""
    parts = [*(turn.text for turn in example.history), *([example.knowledge] if example.knowledge else [])]
    return replace(example, knowledge="\n".join(parts), history=())
