"""Defines domains as the configuration has them, and reads their rows: a dev half and a held-out half for each."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from data_modules.build import build_source
from data_modules.reading.dataset import read_examples
from data_modules.reading.files import EMBEDDED
from data_modules.reading.rows import ReadReport
from data_modules.splits import divide_groups
from faithkit.errors import UserError
from faithkit.provenance.row_keys import group_hash
from faithkit.records import Example
from faithkit_workflows.settings.benchmark_blocks import ALL, DEV, HELD, JOINED, DomainOptions

HALF, SEED = 0.5, 17  # fixed: any other value would move held-out rows into the dev half
EMBEDDED_ROWS = {"train": 60, "validation": 60, "test": 60}
log = logging.getLogger("faithkit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain(DomainOptions):
    """One domain of `benchmark.domains`.

    Args:
        name: Its key, as metrics and prediction ids have it.
        related_domains: The domains that share texts, corpora or authors with it, and itself. Models that are tested
            on this domain are trained on none of them.
    """

    name: str
    sources: Sequence[Mapping[str, Any]]  # type: ignore[assignment]  # plain, as in the configuration
    related_domains: frozenset[str] = frozenset()


def read_domains(blocks: Mapping[str, Mapping[str, Any]], only: Sequence[str] | None = None) -> dict[str, Domain]:
    """Reads the domains of a configuration and finds which of them are related.

    Args:
        only: The names of those to read; None for all.
    """
    chosen = {name: Domain(name=name, **block) for name, block in blocks.items() if only is None or name in only}
    found = {}
    for name, domain in chosen.items():
        related = {name}
        for kind in ("texts", "corpora", "authors"):
            own = set(getattr(domain, kind))
            related |= {key for key, other in chosen.items() if own & set(getattr(other, kind))}
        found[name] = replace(domain, related_domains=frozenset(related))
    return found


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a domain; ids are `DOMAIN/SOURCE/SPLIT/ID`.

    Args:
        originals: The rows as in the corpus, to find those that a model was trained on.
        inputs: The rows as every system reads them, with the history joined to the knowledge where the domain asks.
    """

    originals: tuple[Example, ...] = ()
    inputs: tuple[Example, ...] = ()

    def __len__(self) -> int:
        return len(self.inputs)

    def take(self, places: Sequence[int]) -> "Rows":
        """Selects the rows at these places."""
        return Rows(tuple(self.originals[i] for i in places), tuple(self.inputs[i] for i in places))

    def limit(self, max_rows: int | None) -> "Rows":
        """Keeps at most so many rows: whole groups in the order of their hashes, so that a larger limit only adds."""
        if max_rows is None or len(self) <= max_rows:
            return self
        hashes = np.array([group_hash(example.group) for example in self.inputs], np.uint64)
        _, place, size = np.unique(hashes, return_inverse=True, return_counts=True)
        fits = np.cumsum(size) <= max_rows
        fits[0] = True  # at least one group, however large
        return self.take(np.flatnonzero(fits[place]).tolist())


def concatenate(parts: Sequence[Rows]) -> Rows:
    """Joins rows, one part after the other."""
    return Rows(
        tuple(row for part in parts for row in part.originals), tuple(row for part in parts for row in part.inputs)
    )


@dataclass(frozen=True, slots=True)
class DomainRows:
    """The labelled rows of a domain.

    Args:
        halves: The rows that may be tested: `dev` and `held`.
        fit_only: Rows for training that are never tested.
    """

    domain: Domain
    halves: Mapping[str, Rows]
    fit_only: Rows

    def select_part(self, part: str) -> Rows:
        """Selects the tested rows of a part: dev, held, or all."""
        if part != ALL:
            return self.halves[part].limit(self.domain.max_rows)
        return concatenate([self.select_part(half) for half in (DEV, HELD)])


def read_all_domains(block: Mapping[str, Any]) -> dict[str, DomainRows]:
    """Reads the labelled rows of the domains of a `benchmark` block.

    Raises:
        UserError: Files are missing, a row is bad, or nothing is left of a domain.
    """
    root, found = block["path"], {}
    for name, domain in read_domains(block["domains"], block["only"]).items():
        tested, fit_only = list[Rows](), list[Rows]()
        for number, source in enumerate(domain.sources):
            options = {key: value for key, value in source.items() if key not in ("splits", "where", "fit_only")}
            folder = str(options.pop("path", ""))
            if root == EMBEDDED:
                corpus = build_source(**options, path=EMBEDDED, embedded_rows=EMBEDDED_ROWS)
            else:
                corpus = build_source(**options, path=f"{root.rstrip('/')}/{folder}")
            report, where = ReadReport(block["on_bad_row"]), source.get("where") or {}
            examples = [
                example
                for split in corpus.split_names()
                if split in source.get("splits", corpus.split_names())
                for example in read_examples(corpus, split, report)
                if example.label is not None and all(example.meta.get(key) == value for key, value in where.items())
            ]
            if (gap := domain.max_length_gap) is not None:  # of the two responses of a pair, in words
                lengths: dict[Any, list[int]] = {}
                for example in examples:
                    lengths.setdefault(example.meta.get("pair"), []).append(len(example.response.split()))
                kept = {pair for pair, both in lengths.items() if len(both) == 2 and abs(both[0] - both[1]) <= gap}
                examples = [example for example in examples if example.meta.get("pair") in kept]
            prefix = f"{name}/{number}-{corpus.name}"  # ids are unique only within a split of a source
            inputs = named = [replace(example, id=f"{prefix}/{example.split}/{example.id}") for example in examples]
            if domain.history == JOINED:  # the turns move to the front of the knowledge, a line each
                texts = [[*(turn.text for turn in e.history), *([e.knowledge] if e.knowledge else [])] for e in named]
                inputs = [replace(e, knowledge="\n".join(one), history=()) for e, one in zip(named, texts, strict=True)]
            (fit_only if source.get("fit_only") else tested).append(Rows(tuple(named), tuple(inputs)))
        rows = concatenate(tested)
        if not len(rows):
            hint = f"choose other domains: benchmark.only=[...] without {name}"
            raise UserError(f"benchmark.domains.{name}: no labelled row is left", place=root, hint=hint)
        hashes = np.array([group_hash(example.group) for example in rows.inputs], np.uint64)
        divided = divide_groups(hashes, {HELD: HALF}, SEED)
        halves = {HELD: rows.take(divided[HELD].tolist()), DEV: rows.take(divided["train"].tolist())}
        log.info("%s: %s rows, %s of them held", name, f"{len(rows):,}", f"{len(halves[HELD]):,}")
        found[name] = DomainRows(domain, halves, concatenate(fit_only))
    return found
