"""The figures of an audit: detection of changes, what length and overlap explain, accuracy on labelled rows.

The last part has the changes that must not change a verdict: of passages, spelling, earlier turns, and of how rows are
asked for.
"""

import random
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from data_modules.negatives.make import verbatim_knowledge
from faithkit.baselines.simple_detectors import REFITTED, cross_fit_baselines
from faithkit.baselines.word_features import unsupported_share
from faithkit.calibration import ReliabilityBin, reliability
from faithkit.metrics.classification import Ranking, classification_metrics, evaluate_labels, join_outcomes
from faithkit.metrics.span_metrics import count_shared, merge_spans
from faithkit.records import FAITHFUL, HALLUCINATED, Example, Prediction, Turn
from faithkit.scores.board import Board
from faithkit.scores.measures import titles_of
from faithkit.statistics.bootstrap import (
    MIN_GROUPS_OF_SHARE,
    Conclusion,
    Difference,
    Evaluation,
    Groups,
    Test,
    conclude,
    mean_statistic,
    share,
)
from faithkit.statistics.metric import ACCURACY, Metric
from faithkit.words import sentences, unicode_words
from faithkit_workflows.audit.mutations import ORIGINAL, TYPE, TYPES, UNCHANGED, Document
from faithkit_workflows.audit.target import PASSAGES, Asker, passages_of

MIN_OF_CLASS = 8  # rows of each label, for an AUROC
MIN_LABELLED = 20
NUM_BINS = 5
SCORE = "mutation score"
SAME = 1e-6  # difference of scores
Answers = Mapping[str, Prediction]
SHUFFLED, IRRELEVANT, REPEATED, SPACES, UNICODE, OPENING, COPIED, AGAIN, ORDER, SINGLE, LONG, LATE, BEFORE, BEHIND = (
    *("shuffled passages", "irrelevant passage", "repeated passages", "white space", "unicode", "opening", "copied"),
    *("same call again", "batch order", "batch size", "long context", "support at the end"),
    *("copied sentence before", "copied sentence behind"),
)
TURN, CLAIM = "earlier turn", "earlier claim"
DESCRIPTIONS = {
    SHUFFLED: "when passages are shuffled",
    IRRELEVANT: "when an irrelevant passage is added",
    REPEATED: "when all passages are given twice",
    SPACES: "when white space in the answer changes",
    UNICODE: "when quotes, hyphens and spaces are other Unicode characters",
    OPENING: "when the answer begins with 'According to the text,'",
    AGAIN: "when the same rows are asked for again",
    ORDER: "when the rows of a batch are in another order",
    SINGLE: "when rows are asked for one by one",
    LONG: "when irrelevant passages make the context long",
    LATE: "when the support moves to the end of a long context",
    BEFORE: "when a sentence copied from the context comes before the answer",
    BEHIND: "when a sentence copied from the context comes behind the answer",
    TURN: "when an earlier turn of the assistant claims nothing",
    CLAIM: "when an earlier turn of the assistant makes the same claim",
}
MOVED = 0.01  # least difference of two probabilities that counts
VARIANTS = (
    *(SHUFFLED, IRRELEVANT, REPEATED, SPACES, UNICODE, OPENING, COPIED, AGAIN, LONG, LATE, BEFORE, BEHIND),
    *(TURN, CLAIM),
)
QUESTION = "What does the text say?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """What a detector makes of changed copies.

    Args:
        score: The share of changed copies that are called hallucinated while their original is not.
        false_alarms: The share of originals that are called hallucinated.
        found: The share of changed copies that are called hallucinated, by type.
        unmoved: The share of changed copies with the same verdict and probability as their original, by type.
        auroc: Of the probability, changed against unchanged.
        marked: The share of copies called hallucinated with a mark on the change; None if nothing is ever marked.
        precision: The share of marked characters in these copies that are changed.
        early, late: The share of originals from the first, and from the last passage that are called hallucinated.
        missed, alarms: Ids.
    """

    score: Metric | None
    false_alarms: Metric | None
    found: Mapping[str, Metric]
    unmoved: Mapping[str, Metric]
    auroc: Metric | None
    marked: Metric | None
    precision: float | None
    early: Metric | None
    late: Metric | None
    missed: tuple[str, ...]
    alarms: tuple[str, ...]


def measure_detection(cases: Sequence[Example], answers: Answers) -> Detection:
    """Measures verdicts on documents' sentences and their changed copies."""
    originals = [case for case in cases if case.meta[TYPE] == UNCHANGED and case.id in answers]
    copies = [case for case in cases if case.id in answers and str(case.meta.get(ORIGINAL)) in answers]
    first_and_last = [(case, passages_of(case)) for case in originals if len(passages_of(case)) > 1]
    early, late = ([case for case, each in first_and_last if case.response in each[place]] for place in (0, -1))
    called = {id_: answer.label == HALLUCINATED for id_, answer in answers.items()}
    found, unmoved = {}, {}
    for name in TYPES:
        of_type = [case for case in copies if case.meta[TYPE] == name]
        groups = [case.group for case in of_type]
        same = []
        for case in of_type:
            one, other = answers[case.id], answers[case.meta[ORIGINAL]]
            same.append(one.label == other.label and abs((one.score or 0.0) - (other.score or 0.0)) < SAME)
        if (rate := share([called[case.id] for case in of_type], groups)) is not None:
            found[name] = rate
        if (rate := share(same, groups)) is not None:
            unmoved[name] = rate
    hits = [case for case in copies if called[case.id]]
    marks = [(case, merge_spans(answers[case.id].spans), merge_spans(case.spans or ())) for case in hits]
    on_change = [count_shared(marked, changed) for _, marked, changed in marks]
    total = sum(end - start for _, marked, _ in marks for start, end in marked)
    scored = [case for case in (*originals, *copies) if answers[case.id].score is not None]
    auroc = None
    if len({case.label for case in scored}) > 1:
        outcomes = join_outcomes(scored, {case.id: answers[case.id] for case in scored})
        auroc = classification_metrics(outcomes).metrics.get("auroc")
    return Detection(
        score=share([_is_found(case, answers) for case in copies], [case.group for case in copies]),
        false_alarms=share([called[case.id] for case in originals], [case.group for case in originals]),
        found=found,
        unmoved=unmoved,
        auroc=auroc,
        marked=share([number > 0 for number in on_change], [case.group for case in hits]) if total else None,
        precision=sum(on_change) / total if total else None,
        early=share([called[case.id] for case in early], [case.group for case in early]),
        late=share([called[case.id] for case in late], [case.group for case in late]),
        missed=tuple(case.id for case in copies if not called[case.id]),
        alarms=tuple(case.id for case in originals if called[case.id]),
    )


def compare_detection(cases: Sequence[Example], answers: Answers, overlap: Answers, *, name: str) -> Conclusion | None:
    """Concludes whether a detector has a higher mutation score than word overlap; None without a changed copy."""
    copies = [case for case in cases if case.id in answers and str(case.meta.get(ORIGINAL)) in answers]
    if not copies:
        return None
    names = [case.group for case in copies]
    groups = Groups.of(names if len(set(names)) >= MIN_GROUPS_OF_SHARE else [case.id for case in copies])
    ours, theirs = (
        Evaluation(
            groups=groups,
            statistic=mean_statistic(groups, {SCORE: [_is_found(case, of_system) for case in copies]}),
            kinds=ACCURACY,
        )
        for of_system in (answers, overlap)
    )
    difference = ours.subtract(theirs)[SCORE]
    return conclude(name, Test(metric=SCORE, other="word overlap", difference=difference))


def _is_found(copy: Example, answers: Answers) -> bool:
    """Reports whether a changed copy is called hallucinated while its original is not."""
    called = [answers[id_].label == HALLUCINATED for id_ in (copy.id, copy.meta[ORIGINAL])]
    return called[0] and not called[1]


def explain_labels(rows: Sequence[Example], answers: Answers) -> dict[str, float]:
    """Measures how well length and word overlap alone predict the detector's labels: AUROC, either way round.

    Empty if nearly all labels are the same.
    """
    answered = [row for row in rows if row.id in answers]
    called = np.array([answers[row.id].label == HALLUCINATED for row in answered], np.bool_)
    if min(called.sum(), (~called).sum()) < MIN_OF_CLASS:
        return {}
    groups = Groups.of(row.id for row in answered)
    values: dict[str, Sequence[list[Any]]] = {
        "length": ([len(row.response) for row in answered], [len(row.response.split()) for row in answered]),
        "overlap": ([unsupported_share(row.knowledge, row.response) for row in answered],),
    }
    found = {
        name: [float(Ranking(one, called, groups)(np.ones((1, groups.count)))["auroc"][0]) for one in numbers]
        for name, numbers in values.items()
    }
    return {name: max(max(value, 1 - value) for value in each) for name, each in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Figures on rows that people have labelled.

    Args:
        systems: The metrics of the detector and of each baseline, by name; baselines are fitted on other rows.
        conclusion: Whether it is better than the strongest of them.
        refitted: macro-F1 with a threshold that was fitted on the other rows, minus that of its threshold.
    """

    systems: Mapping[str, Mapping[str, Metric]]
    conclusion: Conclusion
    refitted: Difference | None
    bins: Sequence[ReliabilityBin]


def measure_accuracy(rows: Sequence[Example], answers: Answers, *, name: str) -> Accuracy | None:
    """Measures accuracy beside simple baselines, calibration, and the threshold; None for too few labelled rows."""
    known = [row for row in rows if row.id in answers]
    positives = sum(row.label == HALLUCINATED for row in known)
    if len(known) < MIN_LABELLED or not 2 <= positives <= len(known) - 2:
        return None
    predictions = {row.id: answers[row.id] for row in known}
    baselines, names = cross_fit_baselines(known, predictions)
    outcomes, board = join_outcomes(known, predictions), Board()
    board.add(name, evaluate_labels(outcomes))
    for key, of_baseline in baselines.items():
        measured = evaluate_labels(join_outcomes(known, of_baseline))
        board.add(key, measured, title=names[key], is_baseline=key != REFITTED)
    conclusion = board.conclude(name, titles_of(["macro_f1"]))
    assert conclusion is not None, "both labels occur, so macro-F1 is defined"
    scored = outcomes.scored
    return Accuracy(
        systems={names.get(key, key): board.metrics(key) for key in board.systems},
        conclusion=conclusion,
        refitted=board.subtract(REFITTED, name).get("macro_f1") if REFITTED in baselines else None,
        bins=reliability(outcomes.scores[scored], outcomes.gold[scored], NUM_BINS) if scored.any() else [],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Verdicts of the same rows before and after a change that must not matter.

    Args:
        changed: The share of rows whose label changed.
        moved: The share whose label or probability changed.
        to_hallucinated: Rows that became hallucinated; the other changes are in the other direction.
        examples: Ids of rows whose label changed.
    """

    changed: Metric
    moved: float
    to_hallucinated: int
    examples: tuple[str, ...]


def make_variant(row: Example, name: str, others: Sequence[Document], *, long_words: int, seed: int) -> Example | None:
    """Makes the changed row; None where the change leaves it as it is."""
    rng = random.Random(f"{seed}|{name}|{row.id}")
    known, passages, response, history = passages_of(row), list(passages_of(row)), row.response, row.history
    fillers = [
        passage for other in others if other.name != row.group for passage in other.passages if passage not in known
    ]
    if not fillers and name in (IRRELEVANT, LONG, LATE):
        return None
    if name == SHUFFLED:
        shuffled = rng.sample(passages, len(passages))
        passages = shuffled if shuffled != passages else passages[::-1]
    elif name == IRRELEVANT:
        passages.insert(rng.randint(0, len(passages)), rng.choice(fillers))
    elif name == REPEATED:
        passages *= 2
    elif name == SPACES:
        ends = ("  " if n % 4 == 2 else "\n" if w[-1:] == "." else " " for n, w in enumerate(response.split(" ")))
        response = " " + "".join(word + end for word, end in zip(response.split(" "), ends, strict=True))
    elif name == UNICODE:
        text = re.sub(r'"([^"]*)"', "\u201c\\1\u201d", response.replace("'", "\u2019"))
        text = re.sub(r"(?<=\w)-(?=\w)", "\u2010", text)
        response = unicodedata.normalize("NFD", re.sub(r"(?<=\d) (?=\w)", "\u00a0", text))
    elif name == OPENING:
        first, _, rest = response.partition(" ")
        is_plain = first[1:] == first[1:].lower() and first.lower() in ("the", "a", "an", "it", "this", "all", "no")
        response = f"According to the text, {first.lower() if is_plain else first} {rest}"
    elif name == COPIED:
        response = verbatim_knowledge([row])[0][0]
    elif name in (BEFORE, BEHIND):
        about = set(unicode_words(response))  # an answer with its own original would contradict itself
        known_sentences = [one for passage in passages for one in sentences(passage)]
        copied = [one for one in known_sentences if len(about & set(unicode_words(one))) <= len(about) / 2]
        random.Random(f"{seed}|{row.id}").shuffle(copied)  # the same for both
        while copied and len(" ".join(copied[:-1])) >= 80:  # characters: more than a short input has
            copied.pop()
        if not copied:
            return None
        response = " ".join([*copied, response] if name == BEFORE else [response, *copied])
    elif name in (LONG, LATE):
        random.Random(f"{seed}|{row.id}").shuffle(fillers)  # the same for both
        kept: list[str] = []
        while sum(len(one.split()) for one in kept) < long_words:
            kept.append(fillers[len(kept) % len(fillers)])
        passages = [*passages, *kept] if name == LONG else [*kept, *passages]
    elif name in (TURN, CLAIM):  # the same question comes before and after the turn
        asked = history or (Turn(speaker="user", text=QUESTION),)
        history = (
            *asked,
            Turn(speaker="assistant", text=response if name == CLAIM else "Please ask me again."),
            asked[-1],
        )
    if name != AGAIN and (tuple(passages), response, history) == (known, row.response, row.history):
        return None
    meta = {**row.meta, PASSAGES: tuple(passages)}
    texts: dict[str, Any] = {"knowledge": "\n\n".join(passages), "response": response, "history": history}
    return replace(row, id=f"{name}/{row.id}", **texts, spans=None, meta=meta)


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariance:
    """The result of all invariance tests.

    Args:
        copies: The share of sentences copied from their source that are called hallucinated.
        copied: Ids of these rows.
    """

    comparisons: Mapping[str, Comparison]
    copies: Metric | None
    copied: tuple[str, ...]


def compare_variants(
    asker: Asker,
    cases: Sequence[Example],
    labelled: Sequence[Example],
    others: Sequence[Document],
    *,
    count: int,
    long_words: int,
    seed: int,
) -> tuple[Invariance, dict[str, Example], dict[str, Prediction]]:
    """Asks for rows and their variants; also returns all of them, and their verdicts, by id.

    Args:
        count: Rows of both labels that are chosen, alternately; half of them labelled rows, where there are any.
    """
    rows: list[Example] = []
    num_labelled = min(len(labelled), count // 2)
    for source, wanted in ((labelled, num_labelled), (cases, count - num_labelled)):
        by_label = [[row for row in source if row.label == label] for label in (FAITHFUL, HALLUCINATED)]
        for place, of_label in enumerate(by_label):
            most = (wanted + place) // 2
            if len(of_label) > most:
                by_label[place] = [of_label[number * len(of_label) // most] for number in range(most)]
        rows += [replace(row, id=f"base/{row.id}") for pair in zip_longest(*by_label) for row in pair if row]
    size = asker.batch_size if asker.target.takes_batches else None
    asked = {row.id: row for row in rows}
    answers = asker.ask(rows, "rows", batch_size=size)
    pairs: dict[str, list[tuple[str, str]]] = {}
    variants = {
        name: [one for row in rows if (one := make_variant(row, name, others, long_words=long_words, seed=seed))]
        for name in VARIANTS
    }
    twice = f"{AGAIN}, 2"  # so that what differs by chance is not missed
    variants[twice] = [replace(row, id=f"{twice}/{row.id}") for row in rows]
    if asker.target.takes_batches:
        ordered = {ORDER: random.Random(seed).sample(list(rows), len(rows)), SINGLE: rows}
        renamed = {name: [replace(row, id=f"{name}/{row.id}") for row in made] for name, made in ordered.items()}
        variants = renamed | variants
    sizes = {AGAIN: size, twice: size, ORDER: size, SINGLE: 1}
    for name, made in variants.items():
        asked |= {row.id: row for row in made}
        answers |= asker.ask(made, name, batch_size=sizes.get(name))
        pairs[name] = [(row.id.partition("/")[2], row.id) for row in made]
    pairs[AGAIN] += pairs[twice]
    for name, before in {LATE: LONG, CLAIM: TURN}.items():  # compared with the other variant: the rest is the same
        pairs[name] = [(after.replace(name, before, 1), after) for _, after in pairs[name]]
    compared = {
        name: found for name in DESCRIPTIONS if (found := _compare(pairs.get(name, ()), asked, answers)) is not None
    }
    copies = [after for _, after in pairs[COPIED] if after in answers]
    is_wrong = {id_: answers[id_].label == HALLUCINATED for id_ in copies}
    rate = share(list(is_wrong.values()), [asked[id_].group for id_ in copies])
    done = Invariance(comparisons=compared, copies=rate, copied=tuple(id_ for id_ in copies if is_wrong[id_]))
    return done, asked, answers


def _compare(
    pairs: Sequence[tuple[str, str]], rows: Mapping[str, Example], answers: Mapping[str, Prediction]
) -> Comparison | None:
    both = [(before, after) for before, after in pairs if before in answers and after in answers]
    changed = [answers[before].label != answers[after].label for before, after in both]
    rate = share(changed, [rows[after].group for _, after in both])
    if rate is None:
        return None
    ids = [after for (_, after), is_changed in zip(both, changed, strict=True) if is_changed]
    moved = [
        is_changed or abs((answers[before].score or 0.0) - (answers[after].score or 0.0)) > MOVED
        for (before, after), is_changed in zip(both, changed, strict=True)
    ]
    to_hallucinated = sum(answers[id_].label == HALLUCINATED for id_ in ids)
    return Comparison(
        changed=rate,
        moved=sum(moved) / len(moved),
        to_hallucinated=to_hallucinated,
        examples=tuple(ids),
    )
