"""The embedded corpus: any number of examples from a seed. Each can be made without those before it.

In its invented dialogues a seeker asks about one topic, and a wizard answers from knowledge that changes every turn.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any, ClassVar, NamedTuple

from data_modules.embedded.facts import (
    ADDITION,
    CONTRADICTION,
    DOMAINS,
    ENTITY_SWAP,
    NUMBER_SWAP,
    REWORDED,
    SUBJECTIVE,
    DialogueState,
    Domain,
    Fact,
    Slot,
    added_clause,
    draw_facts,
    draw_kind,
    draw_unknown_relation,
    judgement,
    swap_kind,
    true_clause,
    write_sentences,
    wrong_clause,
)
from data_modules.embedded.phrasing import (
    GENERIC,
    GREETINGS,
    PERSONAL,
    REACTIONS,
    Clause,
    Mark,
    Plan,
    Random01,
    draw_plan,
    pick,
    word,
    write_reply,
)
from data_modules.reading.dataset import SPLITS, GeneratedSource
from faithkit.errors import UserError
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Span, Turn, span_type
from faithkit.settings.check import check_value
from faithkit.settings.types import NonNegativeInt

REMARK_RATE = 0.15  # of replies, those with a harmless first-person remark
GENERIC_LABELS = {"drop": None, "faithful": FAITHFUL, "hallucinated": HALLUCINATED, "unlabelled": None}
GENERIC_EVERY = 8  # one turn in this many gives a generic reply, unless they are dropped
VERSION = 6  # raised with every change of the generator's output
# Dialogues come in blocks of twelve turns, so that an example's dialogue is found by division. Every turn gives two
# examples, its faithful and its hallucinated reply, so that nothing they share can give the label away.
_LENGTHS = ((3, 4, 5), (4, 2, 6), (5, 4, 3), (2, 5, 5), (6, 3, 3), (4, 4, 4))


@dataclass(slots=True)
class Reply:
    """A reply with its annotations."""

    text: str
    kind: str  # a key of RATES, or faithful, uncooperative, generic
    severity: str  # evident, subtle, or none
    marks: list[Mark]  # its unsupported parts
    tags: tuple[str, ...]
    vrm: list[str]  # verbal response modes, as BEGIN annotates them
    truth: str  # what the knowledge states in place of the unsupported parts

    @property
    def target(self) -> str:
        """The judgement that this reply deserves."""
        return judgement(self.kind, [self.text[start:end] for start, end, _ in self.marks], self.truth)


@dataclass(slots=True)
class Exchange:
    """One turn: the knowledge, the history, a faithful reply and its hallucinated partner."""

    domain: str
    topic: str
    sentences: list[str]
    history: tuple[Turn, ...]
    faithful: Reply
    hallucinated: Reply
    generic_text: str
    true_clause: str  # states the main fact
    wrong_clause: str  # the hallucinated reply's version of it; equal where that only adds a remark
    hallucinated_first: bool  # the order of the two; layouts with one reply a turn show the first
    is_edited: bool  # the faithful reply was made from the hallucinated one, as FaithDial's are

    @property
    def generic(self) -> Reply:
        """The reply that says nothing."""
        return Reply(self.generic_text, "generic", "none", [], ("Generic",), ["Acknowledgment"], "")

    def shown_reply(self, *, generic: bool) -> Reply:
        """Returns the reply of a layout that has one a turn."""
        if generic:
            return self.generic
        return self.hallucinated if self.hallucinated_first else self.faithful


class Outline(NamedTuple):
    """All that a turn's two replies share. It is drawn before them, so nothing in it can hint at the label."""

    kind: str  # of the hallucination
    facts: list[Fact]  # of the knowledge
    sentences: list[str]
    main: Fact  # the one that the hallucinated reply gets wrong
    stated: list[Fact]  # those that the faithful reply states, the main one among them
    unknown: int  # a relation that the knowledge does not mention
    asked: int  # the relation that the seeker asks about
    admits_ignorance: bool  # the wizard says that it does not know what was asked
    hallucinated_first: bool
    seeker: Turn
    plan: Plan
    remark: int | None  # which of PERSONAL


def exchanges(split: str, seed: int, number: int, num_turns: int) -> list[Exchange]:
    """Makes the first turns of dialogue `number`: always the same for the same arguments."""
    random = Random(f"{seed}:{split}:{number}").random
    domain = pick(random, DOMAINS)
    state = DialogueState(domain, domain.full_name.format(word(random, split)), split)
    made: list[Exchange] = []
    # Every draw comes from one generator, so the order of the calls below, and of those that they make, decides the
    # corpus: a change of it is a change of VERSION.
    for _ in range(num_turns):
        outline = _draw_outline(random, state)
        history = (*state.history, outline.seeker)
        clauses = [true_clause(random, state, fact, REWORDED) for fact in outline.stated]
        text, _ = write_reply(outline.plan, clauses, _harmless_remark(outline))
        answers = outline.admits_ignorance or any(fact.relation == outline.asked for fact in outline.stated)
        vrm = ["Edification"]
        if outline.plan.opener:
            vrm.insert(0, "Acknowledgment")
        if "?" in text:
            vrm.append("Question")
        kind = "faithful" if answers else "uncooperative"
        tags = ("Entailment",) if answers else ("Entailment", "Uncooperative")
        faithful = Reply(text, kind, "none", [], tags, vrm, _join_clauses(outline.stated))
        hallucinated, wrong = _hallucinated_reply(random, state, outline, clauses, vrm)
        state.history += (outline.seeker, Turn(speaker="wizard", text=text))
        main = outline.stated.index(outline.main)
        true_text, wrong_text = clauses[main].text, wrong[main].text
        generic_text, is_edited = pick(random, GENERIC), random() < 0.75
        # By position: keywords take twice as long, and tens of millions of rows are made of these.
        made.append(Exchange(
            state.domain.name, state.full_name, outline.sentences, history, faithful, hallucinated,
            generic_text, true_text, wrong_text, outline.hallucinated_first, is_edited,
        ))  # fmt: skip
    return made


def _draw_outline(random: Random01, state: DialogueState) -> Outline:
    domain, relations = state.domain, state.domain.relations
    by_kind = _relations_by_kind(domain)
    kind = draw_kind(random)
    if kind in (ENTITY_SWAP, NUMBER_SWAP) and kind not in by_kind:
        kind = CONTRADICTION  # the domain has no relation with names or numbers
    # Most additions replace a clause without a name or a number by such another.
    about = CONTRADICTION if kind == ADDITION and random() >= 0.15 else kind
    focus = pick(random, by_kind[about]) if about in by_kind else int(random() * len(relations))
    facts = draw_facts(random, state, focus)
    sentences = write_sentences(random, state, [fact.clause for fact in facts])
    unknown = draw_unknown_relation(random, domain, facts, closed=kind == ADDITION)
    asks_unknown = random() < 0.25
    admits_ignorance = asks_unknown and random() < 0.6
    main = next(fact for fact in facts if fact.relation == focus)
    # The faithful reply states the main fact, often with another before or after it.
    stated = [main]
    if len(facts) > 1 and random() < 0.6:
        place = 0 if random() < 0.5 else 1
        stated.insert(place, pick(random, [fact for fact in facts if fact is not main]))
    asked = unknown if asks_unknown else pick(random, stated if random() < 0.85 else facts).relation
    hallucinated_first = random() < 0.5
    question = relations[asked].question
    if state.history:
        text = f"{pick(random, REACTIONS)} {question}" if random() < 0.7 else question
    else:
        text = f"{pick(random, GREETINGS).format(state.full_name)} {question}"
    seeker = Turn(speaker="seeker", text=text)
    plan = draw_plan(random, domain.name, state.full_name, relations[asked].topic if admits_ignorance else None)
    # The partner of a subjective remark is a harmless one, so that having a remark gives nothing away.
    remark = int(random() * len(PERSONAL)) if kind == SUBJECTIVE or random() < REMARK_RATE else None
    return Outline(
        kind, facts, sentences, main, stated, unknown, asked, admits_ignorance, hallucinated_first, seeker, plan, remark
    )


@cache
def _relations_by_kind(domain: Domain) -> dict[str, tuple[int, ...]]:
    kinds = [swap_kind(relation) for relation in domain.relations]
    return {kind: tuple(i for i, k in enumerate(kinds) if k == kind) for kind in kinds}


def _hallucinated_reply(
    random: Random01, state: DialogueState, outline: Outline, clauses: list[Clause], faithful_vrm: list[str]
) -> tuple[Reply, list[Clause]]:
    """Makes the faithful reply's partner, and returns it with its clauses."""
    kind, stated = outline.kind, outline.stated
    both = random() < 0.75  # of two clauses both are wrong
    wrong, severity, remark = clauses, "evident", _harmless_remark(outline)
    if kind == SUBJECTIVE:
        assert outline.remark is not None, "a subjective reply has a remark"
        claim = PERSONAL[outline.remark][0]
        remark = Clause(claim, 0, len(claim), kind)
    else:
        # The relation that the wizard admits not to know is not what it then makes a claim about.
        unknown = outline.unknown
        if outline.admits_ignorance:
            unknown = draw_unknown_relation(random, state.domain, outline.facts, closed=kind == ADDITION)
        # The main clause becomes wrong, and none with names or numbers, as they are conspicuous.
        main, relations = stated.index(outline.main), state.domain.relations
        closed = [not isinstance(relations[fact.relation].values, Slot) for fact in stated]
        targets = [i for i, is_closed in enumerate(closed) if i == main or (both and is_closed)]
        wrong, severities = list(clauses), set()
        for i in targets:
            if kind == ADDITION:
                wrong[i] = added_clause(random, state, unknown, REWORDED)
                known = [*outline.facts, Fact(unknown, None, "")]
                unknown = draw_unknown_relation(random, state.domain, known, closed=True)
            else:
                wrong[i], severity = wrong_clause(random, state, stated[i], outline.facts, REWORDED)
                severities.add(severity)
        # A wrong clause is easily missed next to a correct one.
        severity = "subtle" if "subtle" in severities or len(targets) < len(stated) else "evident"
    text, marks = write_reply(outline.plan, wrong, remark)
    is_partly_true = len(wrong) > len(marks) or kind == SUBJECTIVE
    tags = ("Hallucination", "Entailment") if is_partly_true else ("Hallucination",)
    vrm = ["Disclosure", *faithful_vrm] if kind == SUBJECTIVE else faithful_vrm
    # The facts that the reply should have kept to.
    truth = outline.facts if kind in (ADDITION, SUBJECTIVE) else stated if both else [outline.main]
    return Reply(text, kind, severity, marks, tags, vrm, _join_clauses(truth)), wrong


def _harmless_remark(outline: Outline) -> Clause | None:
    return Clause(PERSONAL[outline.remark][1]) if outline.remark is not None else None


def _join_clauses(facts: list[Fact]) -> str:
    return " and ".join(fact.clause for fact in facts)


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

    def generate(self, split: str, start: int = 0) -> Iterator[Example]:
        """Generates the examples from `start` to the end of the split."""
        _check(split, self.generic)
        return generate(split, max(0, self.sizes()[split] - start), self.seed, start, generic=self.generic)


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
