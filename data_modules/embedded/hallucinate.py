"""Clauses of replies: a fact stated rightly, or edited into a contradiction, an addition, a remark or a swap."""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from data_modules.embedded.domains import PERSON, PLACE, Domain, Relation, Slot, draw_value, reply_wording
from data_modules.embedded.facts import DialogueState, Fact
from data_modules.embedded.phrasing import Clause, Random01, pick

CONTRADICTION, ADDITION, SUBJECTIVE = "contradiction", "addition", "subjective"
ENTITY_SWAP, NUMBER_SWAP = "entity_swap", "number_swap"
RATES = {CONTRADICTION: 0.40, ADDITION: 0.32, SUBJECTIVE: 0.12, ENTITY_SWAP: 0.09, NUMBER_SWAP: 0.07}
# RAGTruth's types distinguish contradicting the source (conflict) from going beyond it (baseless).
KIND_TO_TYPE = {
    CONTRADICTION: "conflict",
    ENTITY_SWAP: "conflict",
    NUMBER_SWAP: "conflict",
    ADDITION: "baseless",
    SUBJECTIVE: "baseless",
}
CONTRAST_RATE = 0.02  # of clauses with `not`


class Wording(NamedTuple):
    """Shares of what a reply says in the knowledge's words: faithful and hallucinated replies alike."""

    values: float  # a value in the words of the knowledge, or of knowledge about the wrong value
    phrases: float  # the verb phrase around it


# Where faithful replies repeat values, a wrong value is a word that the knowledge lacks, and counting words finds it.
# So dialogues reword values, and repeat verb phrases, which say nothing of the truth. Long answers quote, as real ones
# do.
REWORDED = Wording(values=0.3, phrases=0.25)
QUOTED = Wording(values=0.7, phrases=0.0)


def span_type(kind: str, severity: str) -> str:
    """Returns the span type (`faithkit.records`) of a kind of hallucination at a severity."""
    return f"{severity}_{KIND_TO_TYPE[kind]}"


def swap_kind(relation: Relation) -> str:
    """Returns the kind of hallucination that a wrong value of this relation is."""
    values = relation.values
    if not isinstance(values, Slot):
        return CONTRADICTION
    return ENTITY_SWAP if values.kind in (PERSON, PLACE) else NUMBER_SWAP


def draw_kind(random: Random01) -> str:
    """Draws a kind of hallucination according to RATES."""
    roll = random()
    for kind, rate in RATES.items():
        roll -= rate
        if roll < 0:
            return kind
    return CONTRADICTION


def reply_clause(random: Random01, relation: Relation, value: Any, wording: Wording, *, wrong: bool = False) -> Clause:
    """Words a fact as a verb phrase of a reply; the value of a wrong one is marked."""
    repeats = bool(wording.phrases) and random() < wording.phrases
    before, after = pick(random, relation.knowledge_templates if repeats else relation.reply_templates)
    text = reply_wording(random, value, wording.values)
    whole = f"{before}{text}{after}"
    return Clause(whole, len(before), len(before) + len(text), swap_kind(relation)) if wrong else Clause(whole)


def contrast(random: Random01, relation: Relation, truth: Any, other: Any, wording: Wording, *, wrong: bool) -> Clause:
    """Words a fact as `is A, not B` or `is not B`.

    A faithful and a hallucinated reply then have the same words in another order, so words alone do not show the label.
    """
    claimed, denied = (other, truth) if wrong else (truth, other)
    before, _ = pick(random, relation.reply_templates)
    denial = reply_wording(random, denied, wording.values)
    if random() < 0.5 and before.startswith(("is ", "was ")):
        verb, _, rest = before.partition(" ")
        text = f"{verb} not {rest}{denial}"
        return Clause(text, 0, len(text), CONTRADICTION) if wrong else Clause(text)
    text = f"{before}{reply_wording(random, claimed, wording.values)}, not {denial}"
    return Clause(text, len(before), len(text), CONTRADICTION) if wrong else Clause(text)


def judgement(kind: str, marked: Sequence[str], truth: str) -> str:
    """Writes a judge's answer about a reply: yes or no, the unsupported parts, and why.

    Args:
        kind: A key of `RATES`, or faithful, uncooperative, generic.
        marked: The unsupported parts.
        truth: What the knowledge states in their place; for a faithful reply, the facts that it took from there.
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


@cache
def _contrastable(domain: Domain) -> tuple[bool, ...]:
    """Returns for each relation whether `not` may precede its values: those of closed sets that end reply clauses."""
    return tuple(
        not isinstance(relation.values, Slot) and all(t.before and not t.after for t in relation.reply_templates)
        for relation in domain.relations
    )


def true_clause(random: Random01, state: DialogueState, fact: Fact, wording: Wording) -> Clause:
    """Writes a clause that states the fact."""
    relation = state.domain.relations[fact.relation]
    if random() < CONTRAST_RATE and _contrastable(state.domain)[fact.relation]:
        other = draw_value(random, relation.values, state.split, unlike=fact.value)
        return contrast(random, relation, fact.value, other, wording, wrong=False)
    return reply_clause(random, relation, fact.value, wording)


def wrong_clause(
    random: Random01, state: DialogueState, fact: Fact, facts: list[Fact], wording: Wording
) -> tuple[Clause, str]:
    """Writes a clause that contradicts the fact, with the wrong part marked, and returns it with its severity."""
    relation = state.domain.relations[fact.relation]
    # Subtle: the knowledge gives this very value to another relation. Evident: the knowledge does not mention it.
    relations = state.domain.confusable[fact.relation]
    confusable = [f.value for f in facts if f.relation in relations and f.value != fact.value]
    if confusable and random() < 0.25:
        other = pick(random, confusable)
    else:
        for _ in range(20):
            other = draw_value(random, relation.values, state.split, unlike=fact.value)
            if other not in confusable:
                break
    severity = "subtle" if other in confusable else "evident"
    if random() < CONTRAST_RATE and _contrastable(state.domain)[fact.relation]:
        return contrast(random, relation, fact.value, other, wording, wrong=True), "subtle"
    clause = reply_clause(random, relation, other, wording, wrong=True)
    if not relation.reply_templates[0].before and not relation.reply_templates[0].after:  # the value is all of it
        clause = Clause(clause.text, 0, len(clause.text), clause.kind)
    return clause, severity


def added_clause(random: Random01, state: DialogueState, relation: int, wording: Wording) -> Clause:
    """Writes a clause about a relation that the knowledge does not mention; all of it is marked."""
    described = state.domain.relations[relation]
    text = reply_clause(random, described, draw_value(random, described.values, state.split), wording).text
    return Clause(text, 0, len(text), ADDITION)
