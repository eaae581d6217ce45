"""Settles disagreements: by majority, by the most severe answer, by an expert's answers, or by a person's decisions.

What a rule cannot settle (a tie, a row that the expert did not see) stays open, and so does a row with too few
annotators. Open rows are listed for a person, whose answers are read back and checked.

>>> question = Question(CHOICES, "verdict", "", labels={"wrong": "", "right": ""})
>>> settle_question(question, [["wrong"], ["right"], ["right"]], "majority")
['right']
>>> settle_question(question, [["wrong"], ["right"], ["right"]], "severe")
['wrong']
>>> settle_question(question, [["wrong"], ["right"]], "majority") is None
True
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from faithkit.errors import UserError, shorten
from faithkit.files.jsonl import read_numbered_jsonl
from faithkit_papers.annotation.project import Annotation, AnnotationRow, check_spans, join_overlaps
from faithkit_papers.annotation.schemes import CHOICES, SPANS, TEXT, Answer, Answers, Question, Scheme

MAJORITY, SEVERE, EXPERT = "majority", "severe", "expert"  # or hand: a person decides every difference
DECISION = "decision"  # field of a person's answers in to_decide.jsonl


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The outcome of one row.

    Args:
        answers: Those that all or the rule agree on, by question.
        open: The questions that are not settled.
        how: agreed, one annotator, the rule's name, decided by hand, or open.
        disagree: The questions that the annotators answered differently.
    """

    row: str
    answers: Answers
    open: tuple[str, ...]
    how: str
    disagree: tuple[str, ...]


def settle(
    scheme: Scheme,
    rows: Mapping[str, AnnotationRow],
    annotations: Sequence[Annotation],
    *,
    rule: str,
    expert: Mapping[str, Answers] | None = None,
    decisions: Mapping[str, Answers] | None = None,
    min_annotators: int = 1,
) -> list[Settled]:
    """Settles every annotated row, in the order of the rows.

    Args:
        rule: majority, severe, expert or hand; a person's decision takes precedence.
        expert: The expert's answers by row, for the rule `expert`; the expert is not an annotator then.
        decisions: A person's decisions, by row.
        min_annotators: Rows with fewer stay open.
    """
    by_row: dict[str, list[Annotation]] = {}
    for annotation in annotations:
        by_row.setdefault(annotation.row, []).append(annotation)
    found = []
    for row in rows:
        given = by_row.get(row, [])
        if given or (decisions and row in decisions) or (expert and row in expert):
            found.append(_settle_row(scheme, row, given, rule, expert or {}, decisions or {}, min_annotators))
    return found


def _settle_row(
    scheme: Scheme,
    row: str,
    given: Sequence[Annotation],
    rule: str,
    expert: Mapping[str, Answers],
    decisions: Mapping[str, Answers],
    min_annotators: int,
) -> Settled:
    names = [question.name for question in scheme.questions]
    differing = tuple(
        name for name in names if any(one.answers.get(name) != given[0].answers.get(name) for one in given[1:])
    )
    if row in decisions:
        # Questions that a decision leaves out keep the answer of all, or of the rule.
        ruled = _settle_row(scheme, row, given, rule, expert, {}, 1)
        left_out = tuple(name for name in ruled.open if given and name not in decisions[row])
        how = "open" if left_out else "decided by hand"
        return Settled(row=row, answers=ruled.answers | decisions[row], open=left_out, how=how, disagree=differing)
    if rule == EXPERT and row in expert:
        return Settled(row=row, answers=dict(expert[row]), open=(), how=EXPERT, disagree=differing)
    if not given or len(given) < min_annotators:
        return Settled(row=row, answers={}, open=tuple(names), how="open", disagree=differing)
    answers: Answers = {}
    left: list[str] = []
    for question in scheme.questions:
        all_given = [one.answers[question.name] for one in given if question.name in one.answers]
        if not all_given:
            continue
        if question.name not in differing:
            answers[question.name] = all_given[0]
        elif question.kind == TEXT and rule in (MAJORITY, SEVERE):
            # That of the annotator who agrees with most of the settled answers; of equals the first by name.
            by_fit = {}
            for one in given:
                if question.name in one.answers:
                    agreed = sum(one.answers.get(name) == answer for name, answer in answers.items())
                    by_fit[-agreed, one.annotator] = str(one.answers[question.name])
            answers[question.name] = by_fit[min(by_fit)]
        elif (settled := settle_question(question, [one.answers.get(question.name) for one in given], rule)) is None:
            left.append(question.name)
        else:
            answers[question.name] = settled
    how = "open" if left else rule if differing else "agreed" if len(given) > 1 else "one annotator"
    return Settled(row=row, answers=answers, open=tuple(left), how=how, disagree=differing)


def settle_question(question: Question, answers: Sequence[Any], rule: str) -> Answer | None:
    """Settles one question's answers (None if an annotator gave none), or leaves it open: None.

    Majority: of Choices the label of more annotators than any other, of several labels those that more than half gave;
    of Spans the characters that more than half marked, with the label that most of them gave (of equals the most
    severe); of numbers the median, where it is one of the answers. Severe: the most severe label, all labels that
    anybody gave where several are allowed, the union of spans with the most severe label, the lowest number.
    """
    given = [answer for answer in answers if answer is not None]
    if rule not in (MAJORITY, SEVERE) or not given:
        return None
    if question.kind == SPANS:
        return _settle_spans(question, given, len(answers) / 2 if rule == MAJORITY else 0)
    if question.kind == CHOICES:
        counts = Counter(label for answer in given for label in answer)
        if question.multiple:
            least = len(answers) / 2 if rule == MAJORITY else 0
            return [label for label in question.labels if counts[label] > least] or None
        if rule == SEVERE:
            return [next(label for label in question.labels if counts[label])] if counts else None
        unanswered = sum(not answer for answer in answers)  # counts as an answer, which may have the majority
        (best, most), *others = counts.most_common() or [("", 0)]
        tied = unanswered >= most or any(count == most for _, count in others)
        return None if tied else [best]
    if rule == SEVERE:
        return min(given)
    ordered = sorted(given)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return low if low == high else None


def _settle_spans(question: Question, answers: Sequence[list[dict[str, Any]]], least: float) -> list[dict[str, Any]]:
    """Keeps the characters that more than `least` annotators marked, cut where their label or flags change."""
    edges = sorted({edge for spans in answers for span in spans for edge in (span["start"], span["end"])})
    severity = list(question.labels)
    pieces: list[dict[str, Any]] = []
    for start, end in pairwise(edges):
        marking = [[span for span in spans if span["start"] <= start and end <= span["end"]] for spans in answers]
        marking = [spans for spans in marking if spans]
        if len(marking) <= least or not marking:
            continue
        labels = Counter(label for spans in marking for label in {span["label"] for span in spans})
        flags = Counter(
            flag for spans in marking for flag in {flag for span in spans for flag in span.get("flags", ())}
        )
        label = min(labels, key=lambda name: (-labels[name] if least else 0, severity.index(name)))
        kept = [flag for flag in question.flags if flags[flag] * 2 > len(marking)]
        piece = {"start": start, "end": end, "label": label} | ({"flags": kept} if kept else {})
        if (
            pieces
            and pieces[-1]["end"] == start
            and {**piece, "start": 0, "end": 0} == {**pieces[-1], "start": 0, "end": 0}
        ):
            pieces[-1]["end"] = end
        else:
            pieces.append(piece)
    return pieces


def open_rows_to_decide(
    settled: Sequence[Settled], rows: Mapping[str, AnnotationRow], given: Mapping[str, Mapping[str, Answers]]
) -> Iterator[dict[str, Any]]:
    """Lists the open rows for a person to fill in `decision`: the answers by question.

    Args:
        given: The answers by row and annotator.
    """
    for one in settled:
        if one.open:
            shown = {"text": rows[one.row].text, "annotators": given[one.row], "settled": one.answers}
            yield {"id": one.row, "decide": list(one.open), DECISION: None, **shown}


def read_answers(path: Path, scheme: Scheme, rows: Mapping[str, AnnotationRow], key: str) -> dict[str, Answers]:
    """Reads a person's answers by row: JSON lines of {"id", "answers"}, or {"id", "decision"} of a `to_decide` file.

    Args:
        key: The field of the answers. Lines without a decision are still open.

    Raises:
        UserError: A row that the project does not have, a row twice, or an answer that its question does not allow.
    """
    found: dict[str, Answers] = {}
    for line, values in read_numbered_jsonl(path):
        place, row = f"{path}, line {line}", values.get("id")
        if not isinstance(row, str) or row not in rows:
            problem = f"id is {shorten(row)}, which the project does not have"
            raise UserError(problem, place=place, hint="see its rows.jsonl")
        if key == DECISION and values.get(key) is None:
            continue
        if row in found:
            raise UserError(f"row {shorten(row)} has two lines", place=place, hint="keep one of them")
        hint = "see the answers of the annotators in the same line"
        if not isinstance(given := values.get(key), Mapping):
            raise UserError(f"answers must be an object by question, got {shorten(given)}", place=place, hint=hint)
        found[row] = {}
        for name, answer in given.items():
            question = scheme.by_name.get(name)
            if question is None:
                known = ", ".join(scheme.by_name)
                raise UserError(f"no question {shorten(name)}", place=place, hint=f"the scheme has {known}")
            try:
                read = question.read([result["value"] for result in question.results(answer, "", rows[row].text)])
                if question.kind == SPANS:
                    check_spans(read, rows[row].text)
                    read, _ = join_overlaps(read)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise UserError(f"{name}: {error}", place=place, hint=hint) from error
            found[row][name] = read
    return found
