"""The clauses of replies: a fact stated rightly, or in one of the ways that a hallucinated reply gets it wrong."""

from collections.abc import Sequence
from functools import cache

from data_modules.embedded import hallucinate as h
from data_modules.embedded.facts import Domain, draw_value
from data_modules.embedded.hallucinate import Fact, Wording
from data_modules.embedded.knowledge import DialogueState, draw_unknown_relation
from data_modules.embedded.lexicon import Random01
from data_modules.embedded.phrasing import Clause

CONTRAST_RATE = 0.02  # of clauses with `not`


@cache
def _contrastable(domain: Domain) -> tuple[bool, ...]:
    return tuple(h.can_contrast(relation) for relation in domain.relations)


def true_clause(random: Random01, state: DialogueState, fact: Fact, wording: Wording) -> Clause:
    """Writes a clause that states the fact."""
    relation = state.domain.relations[fact.relation]
    if random() < CONTRAST_RATE and _contrastable(state.domain)[fact.relation]:
        other = draw_value(random, relation.values, state.split, unlike=fact.value)
        return h.contrast(random, relation, fact.value, other, wording, wrong=False)
    return h.reply_clause(random, relation, fact.value, wording)


def wrong_clause(
    random: Random01, state: DialogueState, fact: Fact, facts: list[Fact], wording: Wording
) -> tuple[Clause, str]:
    """Writes a clause that contradicts the fact, with the wrong part marked, and returns it with its severity."""
    relation = state.domain.relations[fact.relation]
    other, severity = h.wrong_value(random, state.domain, fact, facts, state.split)
    if random() < CONTRAST_RATE and _contrastable(state.domain)[fact.relation]:
        return h.contrast(random, relation, fact.value, other, wording, wrong=True), "subtle"
    clause = h.reply_clause(random, relation, other, wording, wrong=True)
    if not relation.reply_templates[0].before and not relation.reply_templates[0].after:  # the value is all of it
        clause = Clause(clause.text, 0, len(clause.text), clause.kind)
    return clause, severity


def added_clause(random: Random01, state: DialogueState, relation: int, wording: Wording) -> Clause:
    """Writes a clause about a relation that the knowledge does not mention; all of it is marked."""
    described = state.domain.relations[relation]
    text = h.reply_clause(random, described, draw_value(random, described.values, state.split), wording).text
    return Clause(text, 0, len(text), h.ADDITION)


def wrong_clauses(
    random: Random01,
    state: DialogueState,
    kind: str,
    facts: list[Fact],
    stated: list[Fact],
    clauses: Sequence[Clause],
    targets: Sequence[int],
    unknown: int,
    wording: Wording,
) -> tuple[list[Clause], str]:
    """Makes some clauses of a reply wrong, and returns all of them with the severity of the whole.

    Args:
        kind: The kind of hallucination.
        facts: All facts of the knowledge.
        stated: The facts that the faithful reply states, in the order of its clauses.
        clauses: The faithful reply's clauses.
        targets: The indices of those to be made wrong.
        unknown: A relation that the knowledge does not mention: the first addition is about it.
    """
    wrong, severities = list(clauses), set()
    for i in targets:
        if kind == h.ADDITION:
            wrong[i] = added_clause(random, state, unknown, wording)
            unknown = draw_unknown_relation(random, state.domain, [*facts, Fact(unknown, None, "")], closed=True)
        else:
            wrong[i], severity = wrong_clause(random, state, stated[i], facts, wording)
            severities.add(severity)
    # A wrong clause beside a right one is easily missed.
    subtle = "subtle" in severities or len(targets) < len(stated)
    return wrong, "subtle" if subtle else "evident"
