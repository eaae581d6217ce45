"""The embedded corpus: any number of examples from a seed. Each can be made without those before it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from data_modules.embedded.dialogue import Exchange, Reply, exchanges
from data_modules.reading.dataset import SPLITS, GeneratedSource
from faithkit.errors import UserError
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Span
from faithkit.settings.check import check_value
from faithkit.settings.types import NonNegativeInt
from faithkit.span_types import span_type

GENERIC_LABELS = {"drop": None, "faithful": FAITHFUL, "hallucinated": HALLUCINATED, "unlabelled": None}
GENERIC_EVERY = 8  # one turn in this many gives a generic reply, unless they are dropped
VERSION = 6  # raised with every change of the generator's output

# Dialogues come in blocks of twelve turns, so that an example's dialogue is found by division. Every turn gives two
# examples, its faithful and its hallucinated reply, so that nothing they share can give the label away.
_LENGTHS = ((3, 4, 5), (4, 2, 6), (5, 4, 3), (2, 5, 5), (6, 3, 3), (4, 4, 4))


def dialogue_of(position: int) -> tuple[int, int, int]:
    """Finds the dialogue of the turn at `position` in a split: its number, its length in turns, the turn's place."""
    block, turn = divmod(position, 12)
    for place, num_turns in enumerate(_LENGTHS[block % len(_LENGTHS)]):
        if turn < num_turns:
            return block * 3 + place, num_turns, turn
        turn -= num_turns
    raise AssertionError("the lengths of a block add up to _BLOCK")


def generate(
    split: str, num_examples: int, seed: int = 0, start: int = 0, *, generic: str = "drop"
) -> Iterator[Example]:
    """Generates examples `start` to `start + num_examples` of a split, in constant memory.

    Args:
        split: train, validation or test; they share no topic, no name and no sentence.
        seed: Another seed gives another corpus.
        start: The first example's position; the examples before it are not generated.
        generic: `drop` makes no generic replies; otherwise their label: `faithful`, `hallucinated` or `unlabelled`.
    """
    _check(split, generic)
    index, end = start, start + num_examples
    while index < end:
        number, num_turns, first = dialogue_of(index // 2)
        last = min(num_turns, first + (end - index + 1) // 2 + 1)
        for turn, exchange in enumerate(exchanges(split, seed, number, last)):
            if turn < first:
                continue
            replies = [exchange.faithful, exchange.hallucinated]
            if exchange.hallucinated_first:
                replies.reverse()
            if generic != "drop" and (number + turn) % GENERIC_EVERY == 0:
                replies[1] = exchange.generic
            for reply in replies[index % 2 :]:
                if index < end:
                    yield _example(exchange, reply, split, seed, number, turn, GENERIC_LABELS[generic])
                    index += 1


@dataclass(frozen=True, kw_only=True)
class Embedded(GeneratedSource):
    """The embedded corpus as a dataset.

    Args:
        num_train: Examples of the training split; likewise the others.
        seed: Another seed is another corpus.
        generic: `drop`, `faithful`, `hallucinated` or `unlabelled`.
    """

    name: ClassVar[str] = "embedded"
    options_for_all_rows: ClassVar[Mapping[str, Any]] = {"generic": HALLUCINATED}
    path: str = field(default="embedded", init=False)
    num_train: int = 3000
    num_validation: int = 500
    num_test: int = 1000
    seed: int = 0
    generic: str = "drop"

    def __post_init__(self) -> None:
        _check("train", self.generic)
        for name, number in (*self.sizes().items(), ("", self.seed)):
            check_value(f"num_{name}" if name else "seed", number, NonNegativeInt)

    def layout(self) -> Mapping[str, Any]:
        """Returns the settings that the records depend on."""
        return {"seed": self.seed, "generic": self.generic, "version": VERSION, "sizes": self.sizes()}

    def sizes(self) -> dict[str, int]:
        """Returns the number of examples of each split."""
        return {"train": self.num_train, "validation": self.num_validation, "test": self.num_test}

    def generate(self, split: str, start: int = 0, stop: int | None = None) -> Iterator[Example]:
        """Generates examples `start` to `stop`, or to the end of the split."""
        _check(split, self.generic)
        stop = self.sizes()[split] if stop is None else min(stop, self.sizes()[split])
        return generate(split, max(0, stop - start), self.seed, start, generic=self.generic)


def _check(split: str, generic: str) -> None:
    if split not in SPLITS:
        raise UserError(f"embedded has no split {split!r}", hint="choose from: " + ", ".join(SPLITS))
    if generic not in GENERIC_LABELS:
        raise UserError(f"data.generic is {generic!r}", hint="choose from: " + ", ".join(GENERIC_LABELS))


def _example(
    exchange: Exchange, reply: Reply, split: str, seed: int, number: int, turn: int, generic_label: str | None
) -> Example:
    """Makes the record of an exchange with one of its replies; `generic_label` is that of a generic one."""
    label: str | None
    group = f"embedded-{seed}-{split}-{number}"
    if reply is exchange.hallucinated:
        suffix, label = "h", HALLUCINATED
    elif reply is exchange.faithful:
        suffix, label = "f", FAITHFUL
    else:
        suffix, label = "g", generic_label
    return Example(
        id=f"{group}:{turn}{suffix}",
        source="embedded",
        split=split,
        group=group,
        knowledge=" ".join(exchange.sentences),
        history=exchange.history,
        response=reply.text,
        reference=exchange.faithful.text,
        original=exchange.hallucinated.text if suffix == "f" and exchange.is_edited else None,
        label=label,
        spans=tuple(
            Span(start=start, end=end, label=kind, **span_type("embedded", kind)) for start, end, kind in reply.marks
        ),
        tags=reply.tags,
        negatives=(exchange.hallucinated.text,),
        target=reply.target,
        meta={"kind": reply.kind, "severity": reply.severity, "domain": exchange.domain, "vrm": reply.vrm},
    )
