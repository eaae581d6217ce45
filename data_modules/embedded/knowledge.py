"""The knowledge of a turn: which facts it holds, their values, and its sentences."""

from dataclasses import dataclass, field
from typing import Any

from data_modules.embedded import hallucinate as h
from data_modules.embedded.facts import Domain, Year, draw
from data_modules.embedded.hallucinate import Fact
from data_modules.embedded.lexicon import Random01, pick
from faithkit.records import Turn

TWIN_RATE = 0.3  # of knowledge with two facts that can be mixed up, where the domain has such


@dataclass(slots=True)
class State:
    """A dialogue so far: what it is about, what was settled of it, what was said."""

    domain: Domain
    full: str
    split: str
    values: dict[int, Any] = field(default_factory=dict)
    history: list[Turn] = field(default_factory=list)


def know(random: Random01, state: State, focus: int) -> list[Fact]:
    """The facts that a turn's knowledge holds: the focus, often one it can be mixed up with, and others."""
    domain = state.domain
    chosen = [focus]
    if domain.twins[focus] and random() < TWIN_RATE:
        chosen.append(pick(random, domain.twins[focus]))
    roll = random()
    wanted = 1 if roll < 0.4 else 2 if roll < 0.92 else 3
    while len(chosen) < wanted:
        index = int(random() * len(domain.relations))
        if index not in chosen:
            chosen.append(index)
    for i in range(len(chosen) - 1, 0, -1):
        j = int(random() * (i + 1))
        chosen[i], chosen[j] = chosen[j], chosen[i]
    return [Fact(i, (v := _value(random, state, i)), h.know_clause(random, domain.relations[i], v)) for i in chosen]


def _value(random: Random01, state: State, index: int) -> Any:
    values = state.values
    if index not in values and not state.domain.twins[index]:
        values[index] = draw(random, state.domain.relations[index].values, state.split)
    elif index not in values:
        # Relations that share their values get them together, all different; years in the order of the relations.
        drawn: list[Any] = []
        group = sorted((index, *state.domain.twins[index]))
        for one in group:
            value = draw(random, state.domain.relations[one].values, state.split, unlike=drawn[0] if drawn else None)
            drawn.append(value)
        if isinstance(drawn[0], Year):
            drawn.sort()
        values.update(zip(group, drawn, strict=True))
    return values[index]


def sentences(random: Random01, state: State, clauses: list[str]) -> list[str]:
    """The knowledge: every sentence names the thing, so that no sentence stands in two splits."""
    full, intro = state.full, state.domain.intro
    name = full[0].upper() + full[1:]
    roll = random()
    taken = 2 if len(clauses) > 1 and random() < 0.7 else 1
    said, rest = " and ".join(clauses[:taken]), clauses[taken:]
    if roll < 0.2:
        first = f"{name} is {intro} that {said}"
    elif roll < 0.4:
        first = f"{name}, {intro}, {said}"
    else:
        first = f"{name} {said}"
    written = [first + "."]
    while rest:
        taken = 2 if len(rest) > 1 and random() < 0.5 else 1
        written.append(f"{name} {' and '.join(rest[:taken])}.")
        rest = rest[taken:]
    return written


def unknown(random: Random01, domain: Domain, facts: list[Fact]) -> int:
    """A relation of which the knowledge says nothing."""
    known = [fact.place for fact in facts]
    while (index := int(random() * len(domain.relations))) in known:
        pass
    return index
