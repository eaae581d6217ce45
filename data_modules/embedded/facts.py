"""The knowledge of a turn: draws its facts and their values, and writes its sentences."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from data_modules.embedded.domains import Domain, Slot, Year, draw_value, knowledge_wording
from data_modules.embedded.phrasing import Random01, pick
from faithkit.records import Turn


class Fact(NamedTuple):
    """One fact of the knowledge, with the clause that states it."""

    relation: int  # the relation's index in its domain
    value: Any
    clause: str


@dataclass(slots=True)
class DialogueState:
    """The state of a dialogue: its topic, the values drawn for it so far, and the turns so far."""

    domain: Domain
    full_name: str
    split: str
    values: dict[int, Any] = field(default_factory=dict)  # by relation
    history: list[Turn] = field(default_factory=list)


def draw_facts(random: Random01, state: DialogueState, focus: int) -> list[Fact]:
    """Draws the facts of a turn's knowledge: the focus, often a relation it can be mixed up with, and others."""
    domain = state.domain
    chosen = [focus]
    if domain.confusable[focus] and random() < 0.3:
        chosen.append(pick(random, domain.confusable[focus]))
    roll = random()
    num_wanted = 1 if roll < 0.4 else 2 if roll < 0.92 else 3
    while len(chosen) < num_wanted:
        index = int(random() * len(domain.relations))
        if index not in chosen:
            chosen.append(index)
    for i in range(len(chosen) - 1, 0, -1):  # shuffled, so that the focus may be anywhere
        j = int(random() * (i + 1))
        chosen[i], chosen[j] = chosen[j], chosen[i]
    facts = []
    for relation in chosen:
        # A relation keeps its value in a dialogue; it is drawn at its first use.
        if relation not in state.values:
            if confusable := domain.confusable[relation]:
                # Values that can be mixed up are unlike the first one's, and years are in chronological order.
                group = sorted((relation, *confusable))
                drawn: list[Any] = []
                for each in group:
                    options = domain.relations[each].values
                    drawn.append(draw_value(random, options, state.split, unlike=drawn[0] if drawn else None))
                if isinstance(drawn[0], Year):
                    drawn.sort()
                state.values.update(zip(group, drawn, strict=True))
            else:
                state.values[relation] = draw_value(random, domain.relations[relation].values, state.split)
        value = state.values[relation]
        before, after = pick(random, domain.relations[relation].knowledge_templates)
        facts.append(Fact(relation, value, f"{before}{knowledge_wording(random, value)}{after}"))
    return facts


def write_sentences(random: Random01, state: DialogueState, clauses: list[str]) -> list[str]:
    """Writes the knowledge. Every sentence names the topic, so that no sentence occurs in two splits."""
    full_name, intro = state.full_name, state.domain.intro
    name = full_name[0].upper() + full_name[1:]
    roll = random()
    num_taken = 2 if len(clauses) > 1 and random() < 0.7 else 1
    predicate, rest = " and ".join(clauses[:num_taken]), clauses[num_taken:]
    if roll < 0.2:
        first = f"{name} is {intro} that {predicate}"
    elif roll < 0.4:
        first = f"{name}, {intro}, {predicate}"
    else:
        first = f"{name} {predicate}"
    written = [first + "."]
    while rest:
        num_taken = 2 if len(rest) > 1 and random() < 0.5 else 1
        written.append(f"{name} {' and '.join(rest[:num_taken])}.")
        rest = rest[num_taken:]
    return written


def draw_unknown_relation(random: Random01, domain: Domain, facts: list[Fact], *, closed: bool = False) -> int:
    """Draws a relation that the knowledge does not mention; `closed` prefers those with a closed set of values.

    A new name or number would give an addition away.
    """
    known = [fact.relation for fact in facts]
    relations = domain.relations
    for _ in range(20):
        index = int(random() * len(relations))
        if index not in known and not (closed and isinstance(relations[index].values, Slot)):
            return index
    return next(i for i in range(len(relations)) if i not in known)
