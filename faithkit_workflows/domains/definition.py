"""Domains as a configuration defines them: which corpora make one, and which others it must be kept apart from."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from faithkit.errors import UserError, choice_hint

APART, JOINED = HISTORIES = ("apart", "joined")


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """One domain of `benchmark.domains`.

    Args:
        name: Its key, as metrics and prediction ids have it.
        title: As tables name it.
        sources: Blocks of datasets: `dataset`, `path`, `splits`, `where` (values of `meta` to keep), `fit_only` (never
            tested), and the dataset's own options.
        texts: What its knowledge is from.
        corpora: What its labels are from.
        authors: Who wrote its responses, where these are models.
        history: `joined` puts the question or the turns before the knowledge, since the response stands on both;
            `apart` leaves them where they are, and a critic, whose layout has no history, does not read them.
        max_length_gap: Of datasets of pairs, the pairs alone whose responses differ by so many words at most.
        beside: Shown beside the others: neither in the mean nor learnt from.
        max_rows: Tested rows of each half at most, by whole groups: both halves together may have twice as many.
        looks: How often its labels had been looked at before.
        nli: An NLI model of its own, where the benchmark's was trained on this domain.
        kin: The domains that no model for this one may learn from: those that share something, and itself.
    """

    name: str
    title: str
    sources: Sequence[Mapping[str, Any]]
    texts: Sequence[str]
    corpora: Sequence[str]
    authors: Sequence[str]
    history: str = APART
    max_length_gap: int | None = None
    beside: bool = False
    max_rows: int | None = None
    looks: int = 0
    nli: str | None = None
    kin: frozenset[str] = field(default=frozenset())

    def shares_with(self, other: "Domain") -> bool:
        """Tells whether a model that learnt from one would know something of the other."""
        kinds = ("texts", "corpora", "authors")
        return any(set(getattr(self, kind)) & set(getattr(other, kind)) for kind in kinds)


def read_domains(blocks: Mapping[str, Mapping[str, Any]], only: Sequence[str] | None = None) -> dict[str, Domain]:
    """Reads the domains of a configuration, each with its kin: those whose models must not learn from it.

    Args:
        only: The names of those to read; None for all.

    Raises:
        UserError: `only` names no domain.
    """
    if only is not None and (unknown := [name for name in only if name not in blocks]):
        hint = choice_hint(unknown[0], tuple(blocks))
        raise UserError(f"benchmark.only names no domain: {unknown[0]!r}", hint=hint)
    chosen = {name: Domain(name=name, **block) for name, block in blocks.items() if only is None or name in only}
    return {name: replace(domain, kin=_kin_of(domain, chosen.values())) for name, domain in chosen.items()}


def _kin_of(domain: Domain, others: Iterable[Domain]) -> frozenset[str]:
    return frozenset(other.name for other in others if domain.shares_with(other)) | {domain.name}
