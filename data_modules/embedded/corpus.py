"""The embedded corpus: any number of examples from a seed, each reachable without those before it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.records import FAITHFUL, HALLUCINATED, Example, Span
from data_modules.embedded.dialogue import Exchange, Reply, exchanges
from data_modules.rows import ReadReport, Row

SPLITS = ("train", "validation", "test")
GENERIC_LABELS = {"drop": None, "faithful": FAITHFUL, "hallucinated": HALLUCINATED, "unlabelled": None}
GENERIC_EVERY = 15  # of this many examples one is generic, unless they are dropped
VERSION = 1  # a change of the generator's output changes it

# Dialogues come in blocks of twelve turns, so that example i's dialogue is found by division.
_BLOCK = 12
_LENGTHS = ((3, 4, 5), (4, 2, 6), (5, 4, 3), (2, 5, 5), (6, 3, 3), (4, 4, 4))


def dialogue_of(index: int) -> tuple[int, int, int]:
    """Of example `index`: the dialogue's number, its number of turns, and the turn, from 0."""
    block, turn = divmod(index, _BLOCK)
    for place, num_turns in enumerate(_LENGTHS[block % len(_LENGTHS)]):
        if turn < num_turns:
            return block * 3 + place, num_turns, turn
        turn -= num_turns
    raise AssertionError("the lengths of a block add up to _BLOCK")


def generate(
    split: str, num_examples: int, seed: int = 0, start: int = 0, *, generic: str = "drop"
) -> Iterator[Example]:
    """Examples `start` to `start + num_examples` of a split, in constant memory.

    Args:
        split: train, validation or test; they share no thing, no name and no sentence.
        seed: Another seed is another corpus.
        start: The first example's position; what lies before it is not made.
        generic: What becomes of replies that say nothing: `drop` (none are made), `unlabelled`, or the label they get.
    """
    _check(split, generic)
    index, end = start, start + num_examples
    while index < end:
        number, num_turns, first = dialogue_of(index)
        last = min(num_turns, first + end - index)
        for turn, exchange in enumerate(exchanges(split, seed, number, last)):
            if turn >= first:
                shows_generic = generic != "drop" and (index * 7 + number) % GENERIC_EVERY == 0
                yield _example(exchange, split, seed, number, turn, GENERIC_LABELS[generic] if shows_generic else "")
                index += 1


@dataclass(frozen=True, kw_only=True)
class Embedded:
    """The embedded corpus as a dataset of its own: it has no files, so its examples are made on demand.

    Args:
        num_train: Examples of the training split; likewise the others.
        seed: Another seed is another corpus.
        generic: `drop`, `faithful`, `hallucinated` or `unlabelled`.
    """

    num_train: int = 3000
    num_validation: int = 500
    num_test: int = 1000
    seed: int = 0
    generic: str = "drop"
    name: str = "embedded"
    path: str = "embedded"

    def __post_init__(self) -> None:
        _check("train", self.generic)

    def files(self) -> Mapping[str, Sequence[Path]]:
        """None."""
        return {}

    def layout(self) -> Mapping[str, Any]:
        """What changes the records."""
        return {"seed": self.seed, "generic": self.generic, "version": VERSION, "sizes": self.sizes()}

    def sizes(self) -> dict[str, int]:
        """The number of examples of each split."""
        return {"train": self.num_train, "validation": self.num_validation, "test": self.num_test}

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        """Never called: there are no rows."""
        raise AssertionError("the embedded corpus has no files")

    def generate(self, split: str, start: int = 0, stop: int | None = None) -> Iterator[Example]:
        """Examples `start` to `stop` (or to the split's end)."""
        _check(split, self.generic)
        stop = self.sizes()[split] if stop is None else min(stop, self.sizes()[split])
        return generate(split, max(0, stop - start), self.seed, start, generic=self.generic)


def _check(split: str, generic: str) -> None:
    if split not in SPLITS:
        raise UserError(f"embedded has no split {split!r}", mend="choose from: " + ", ".join(SPLITS))
    if generic not in GENERIC_LABELS:
        raise UserError(f"data.generic is {generic!r}", mend="choose from: " + ", ".join(GENERIC_LABELS))


def _example(exchange: Exchange, split: str, seed: int, number: int, turn: int, generic: str | None) -> Example:
    """The example that one exchange shows; `generic` is the label of a generic reply, or empty for another."""
    faithful, hallucinated = exchange.faithful, exchange.hallucinated
    group = f"embedded-{seed}-{split}-{number}"
    reply: Reply
    if generic != "":
        reply, label = exchange.generic, generic
    elif exchange.hallucinates:
        reply, label = hallucinated, HALLUCINATED
    else:
        reply, label = faithful, FAITHFUL
    shows_edit = reply is faithful and exchange.edited
    return Example(
        id=f"{group}:{turn}",
        source="embedded",
        split=split,
        group=group,
        knowledge=" ".join(exchange.sentences),
        history=exchange.history,
        response=reply.text,
        reference=faithful.text,
        original=hallucinated.text if shows_edit else None,
        label=label,
        spans=tuple(Span(start=start, end=end, label=reply.kind) for start, end in reply.marks),
        tags=reply.tags,
        negatives=(hallucinated.text,),
        target=reply.target,
        meta={"kind": reply.kind, "severity": reply.severity, "domain": exchange.domain, "vrm": reply.vrm},
    )
