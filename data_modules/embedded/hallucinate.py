"""Replies that go beyond their knowledge: each kind of hallucination as an edit of a faithful clause."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from data_modules.embedded.facts import PERSON, PLACE, Domain, Relation, Slot, draw, know_value, say_value
from data_modules.embedded.lexicon import Random01, pick
from data_modules.embedded.phrasing import Clause

CONTRADICTION, ADDITION, SUBJECTIVE = "contradiction", "addition", "subjective"
ENTITY_SWAP, NUMBER_SWAP = "entity_swap", "number_swap"
RATES = {CONTRADICTION: 0.30, ADDITION: 0.32, SUBJECTIVE: 0.11, ENTITY_SWAP: 0.16, NUMBER_SWAP: 0.11}
# What each kind is in RAGTruth's words, which tell what the source denies from what it does not say.
KIND_TO_TYPE = {
    CONTRADICTION: "conflict",
    ENTITY_SWAP: "conflict",
    NUMBER_SWAP: "conflict",
    ADDITION: "baseless",
    SUBJECTIVE: "baseless",
}
SWAP_RATE = 0.25  # of wrong values taken from elsewhere in the knowledge, where one fits
PLAIN = 0.7  # how often a reply keeps the knowledge's own wording of a value


class Fact(NamedTuple):
    """One thing that the knowledge says, with the clause that says it."""

    place: int  # of the relation in its domain
    value: Any
    clause: str


def span_type(kind: str, severity: str) -> str:
    """The type of span, as `faithkit.span_types` names them, that a kind at a severity gives."""
    return f"{severity}_{KIND_TO_TYPE[kind]}"


def category(relation: Relation) -> str:
    """The kind of hallucination that changing this relation's value makes."""
    values = relation.values
    if not isinstance(values, Slot):
        return CONTRADICTION
    return ENTITY_SWAP if values.kind in (PERSON, PLACE) else NUMBER_SWAP


def draw_kind(random: Random01) -> str:
    """A kind at its rate."""
    roll = random()
    for kind, rate in RATES.items():
        roll -= rate
        if roll < 0:
            return kind
    return CONTRADICTION


def know_clause(random: Random01, relation: Relation, value: Any) -> str:
    """The fact as a verb phrase of the knowledge."""
    before, after = pick(random, relation.know)
    return f"{before}{know_value(random, value)}{after}"


def say_clause(random: Random01, relation: Relation, value: Any, *, wrong: bool = False) -> Clause:
    """The fact as a verb phrase of a reply; a wrong one has its value marked."""
    before, after = pick(random, relation.say)
    text = say_value(random, value, PLAIN)
    whole = f"{before}{text}{after}"
    return Clause(whole, len(before), len(before) + len(text), category(relation)) if wrong else Clause(whole)


def wrong_value(random: Random01, domain: Domain, fact: Fact, facts: Sequence[Fact], split: str) -> tuple[Any, str]:
    """A value that the fact does not have, and how hard that is to see.

    Subtle: the knowledge gives this very value to another relation. Evident: it stands nowhere in the knowledge.
    """
    twins = [f.value for f in facts if f.place in domain.twins[fact.place] and f.value != fact.value]
    if twins and random() < SWAP_RATE:
        return pick(random, twins), "subtle"
    for _ in range(20):
        value = draw(random, domain.relations[fact.place].values, split, unlike=fact.value)
        if value not in twins:
            break
    return value, "subtle" if value in twins else "evident"


def contrast(random: Random01, relation: Relation, truth: Any, other: Any, wrong: bool) -> Clause:
    """`is A, not B` or `is not B`: a faithful and a hallucinated reply have the same words in another order."""
    said, denied = (other, truth) if wrong else (truth, other)
    before, _ = pick(random, relation.say)
    denial = say_value(random, denied, PLAIN)
    if random() < 0.5 and before.startswith(("is ", "was ")):
        verb, _, rest = before.partition(" ")
        text = f"{verb} not {rest}{denial}"
        return Clause(text, 0, len(text), CONTRADICTION) if wrong else Clause(text)
    text = f"{before}{say_value(random, said, PLAIN)}, not {denial}"
    return Clause(text, len(before), len(text), CONTRADICTION) if wrong else Clause(text)


def can_contrast(relation: Relation) -> bool:
    """Whether its replies end in their value and the values are phrases that `not` can stand before."""
    return not isinstance(relation.values, Slot) and all(t.before and not t.after for t in relation.say)


def judgement(kind: str, marked: Sequence[str], truth: str) -> str:
    """What a judge should say of the reply: yes or no, the part, and why.

    Args:
        kind: A key of `RATES`, or faithful, uncooperative, generic.
        marked: The unsupported stretches.
        truth: What the knowledge says on the matter; of a faithful reply, what it took from the knowledge.
    """
    if kind == "generic":
        return "No, the response is generic: it says nothing that the knowledge could support or deny."
    if kind in ("faithful", "uncooperative"):
        return f"No, the response is faithful: the knowledge says that it {truth}."
    part = " and ".join(f'"{text}"' for text in marked)
    if kind == SUBJECTIVE:
        return f"Yes, {part} is a personal remark that the knowledge cannot support."
    if kind == ADDITION:
        verb = "is" if len(marked) == 1 else "are"
        return f"Yes, {part} {verb} not in the knowledge, which only says that it {truth}."
    verb = "contradicts" if len(marked) == 1 else "contradict"
    return f"Yes, {part} {verb} the knowledge, which says that it {truth}."
