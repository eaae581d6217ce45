"""Checks responses with any detector: `faithkit.check`; and fails a test by it: `faithkit.assert_faithful`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from os import PathLike
from typing import Any, Unpack, overload

from data_modules.reading.conversations import EVIDENCE, TOOLS, read_conversation
from data_modules.reading.rows import BadRow, ReadReport
from data_modules.reading.rows import Row as RawRow
from faithkit import arguments
from faithkit.arguments import ManyResponses, OneResponse, is_list, read_columns, read_passages, read_turns
from faithkit.detector import DEFAULT
from faithkit.errors import UserError
from faithkit.evidence import add_evidence, describe_mark
from faithkit.languages import (
    IGNORE,
    ON_LANGUAGE,
    WARN,
    find_other_language,
    languages_of,
    report_other_languages,
)
from faithkit.records import (
    CALLS,
    FAITHFUL,
    HALLUCINATED,
    UNPARSED,
    Example,
    Prediction,
    Turn,
    join_passages,
    number_passages,
    passage_text,
)
from faithkit_workflows.detectors.actions import add_actions

MAX_SHOWN = 10  # failing responses in a message
MAX_CHARACTERS = 600  # of a text in the message
Row = tuple[Prediction, str, Any]  # the verdict, the response, its knowledge
ROW = ("knowledge", "response", "history")
METHODS = ("score", "predict", "judge")  # of a critic, a tagger and a judge


@overload
def check(
    knowledge: Any,
    response: str,
    history: Any = None,
    *,
    question: str | None = None,
    by: Any = DEFAULT,
    threshold: float | None = None,
    on_language: str = WARN,
) -> Prediction: ...
@overload
def check(
    knowledge: Any,
    response: Iterable[str],
    history: Any = None,
    *,
    question: Iterable[str | None] | None = None,
    by: Any = DEFAULT,
    threshold: float | None = None,
    on_language: str = WARN,
) -> list[Prediction]: ...
@overload
def check(
    *, by: Any = DEFAULT, threshold: float | None = None, on_language: str = WARN, **names: Unpack[OneResponse]
) -> Prediction: ...
@overload
def check(
    *, by: Any = DEFAULT, threshold: float | None = None, on_language: str = WARN, **names: Unpack[ManyResponses]
) -> list[Prediction]: ...
@overload
def check(
    *,
    messages: Sequence[Any],
    evidence: Sequence[str] = (TOOLS,),
    by: Any = DEFAULT,
    threshold: float | None = None,
    on_language: str = WARN,
) -> list[Prediction]: ...
@arguments.explain_overloads
def check(
    knowledge: Any = None,
    response: Any = None,
    history: Any = None,
    *,
    messages: Any = None,
    evidence: Sequence[str] = (TOOLS,),
    by: Any = DEFAULT,
    threshold: float | None = None,
    on_language: str = WARN,
) -> Any:
    """Checks one response, a list of responses, or a conversation, with a detector that is loaded once per process.

        from faithkit import check
        check(context="The warranty lasts 24 months.", answer="It lasts 36 months.", question="How long?").spans
        check(messages=[{"role": "user", "content": "..."}, ...])  # each turn of the assistant after a tool's result

    Args:
        knowledge: Also `context`: a text, or a list of passages; for a list of responses a list of these.
        response: Also `answer`: a text, or a list of texts.
        history: The turns before the response; `question` is the last of them.
        messages: A conversation with tools, in the place of the arguments before: OpenAI's messages, or those of
            another format that `faithkit score` reads.
        evidence: What the turns of a conversation must rest on: tools, user, system.
        by: A checkpoint of a detector, or a loaded detector. The default needs no training.
        threshold: Probability from which a response is labelled hallucinated; None takes the detector's threshold.
        on_language: Of texts in a language that the detector does not read: warn, stop or ignore. The results of these
            have their `language`.

    Returns:
        The result, or a list of results: a label, a probability, and spans with their evidence if the detector marks
        them. Of a conversation one result for each turn that has evidence, with the id `conversation/turn`.

    Raises:
        UserError: There is no such detector, or an argument is not a text.
    """
    threshold = arguments.read_probability("threshold", threshold)
    arguments.read_choice("on_language", on_language, ON_LANGUAGE)
    if messages is not None:
        if not (knowledge is None and response is None and history is None):
            raise UserError("check: messages take the place of context, answer and history", hint="leave these out")
        for name in evidence:
            arguments.read_choice("evidence", name, EVIDENCE)
        row = RawRow({"messages": messages, "id": "messages"}, "messages", 0, 1)
        try:
            turns = read_conversation(row, ReadReport("stop", "", evidence=tuple(evidence)))
        except BadRow as error:
            raise UserError(str(error), place="messages", hint=error.hint) from error
        return judge_turns(turns, by=by, threshold=threshold, on_language=on_language)
    for name, value in (("knowledge", knowledge), ("response", response)):
        if value is None:
            names = "knowledge, response, history, by, threshold; or messages"
            raise UserError(f"check: missing a required argument: {name!r}", hint=f"it takes {names}")
    knowledge, response = _as_lists(knowledge), _as_lists(response)
    found = _judge(find_detector(by), knowledge, response, history, threshold, on_language)
    is_single = isinstance(response, str)
    rows = [(found, knowledge, response)] if is_single else zip(found, knowledge, response, strict=True)
    results = []
    for one, source, text in rows:
        # A detector without the argument `threshold`, such as a judge, has labelled without it.
        if threshold is not None and one.score is not None and one.label != UNPARSED:
            is_over = one.score >= threshold
            one = replace(one, label=HALLUCINATED) if is_over else replace(one, label=FAITHFUL, spans=())
        if one.spans and source is not None:
            # Evidence counts in the passages as they are given, of which detectors read each once.
            read = read_passages("knowledge", source)
            given = [source] if isinstance(source, str) else [passage_text(passage) for passage in source]
            one = add_evidence(one, read, text)
            spans = [
                replace(span, evidence=replace(span.evidence, passage=given.index(read[span.evidence.passage])))
                if span.evidence is not None and span.evidence.text
                else span
                for span in one.spans
            ]
            one = replace(one, spans=tuple(spans))
        results.append(one)
    return results[0] if is_single else results


def judge_turns(
    turns: Sequence[Mapping[str, Any]],
    *,
    by: Any = DEFAULT,
    threshold: float | None = None,
    on_language: str = WARN,
) -> list[Prediction]:
    """Judges turns of conversations, rows of `expand_conversations`, and the actions that they claim."""
    if not turns:
        return []
    columns = {name: [turn[name] for turn in turns] for name in ("context", "answer", "question")}
    texts = (columns["context"], columns["answer"])
    found = check(*texts, question=columns["question"], by=by, threshold=threshold, on_language=on_language)
    return [
        replace(add_actions(each, turn["answer"], turn[CALLS]), id=turn["id"])
        for each, turn in zip(found, turns, strict=True)
    ]


def _as_lists(value: Any) -> Any:
    """Reads iterators, also those in a list, which can be read once."""
    return [_as_lists(item) for item in value] if is_list(value) else value


@overload
def assert_faithful(
    knowledge: Any,
    response: Any,
    history: Any = None,
    *,
    question: Any = None,
    by: Any = DEFAULT,
    threshold: float | None = None,
) -> None: ...
@overload
def assert_faithful(*, by: Any = DEFAULT, threshold: float | None = None, **names: Unpack[OneResponse]) -> None: ...
@overload
def assert_faithful(*, by: Any = DEFAULT, threshold: float | None = None, **names: Unpack[ManyResponses]) -> None: ...
@arguments.explain_overloads
def assert_faithful(
    knowledge: Any, response: Any, history: Any = None, *, by: Any = DEFAULT, threshold: float | None = None
) -> None:
    """Raises AssertionError if a detector labels a response hallucinated, or gives no verdict that can be parsed.

        from faithkit import assert_faithful
        assert_faithful(knowledge="The Danube flows through ten countries.", response=answer)

    The message lists each failing response with its probability, marked spans in double brackets, and the knowledge,
    with control characters escaped. A list of responses is judged in one call, which is much faster than a loop.

    Args:
        knowledge: Also `context`: a text, or a list of passages; for a list of responses a list of these.
        response: Also `answer`: a text, or a list of texts.
        history: The turns before the response; `question` is the last of them.
        by: A checkpoint of a detector, which is loaded once per process; or a loaded detector. The default needs no
            training.
        threshold: Probability from which a response fails; None takes the detector's label. A verdict without a
            probability counts by its label.

    Raises:
        AssertionError: A response is hallucinated, or has no verdict.
        UserError: There is no such detector, no response, or an argument is not a text.
    """
    __tracebackhide__ = True  # pytest shows the line of the caller
    detector, rows = judge_rows(knowledge, response, history, by=by, threshold=threshold)
    if message := explain_failures(detector, rows, threshold):
        raise AssertionError(message)


def judge_rows(
    knowledge: Any, response: Any, history: Any = None, *, by: Any = DEFAULT, threshold: float | None = None
) -> tuple[Any, list[Row]]:
    """Judges responses as `assert_faithful` does, and returns the detector with the judged rows."""
    threshold = arguments.read_probability("threshold", threshold)
    detector = find_detector(by)
    is_single = isinstance(response, str)
    knowledge, response = _as_lists(knowledge), _as_lists(response)
    if response == []:
        raise UserError("there is no response to judge", hint="give at least one: an empty list proves nothing")
    verdicts = _judge(detector, knowledge, response, history, threshold)
    rows = [(verdicts, response, knowledge)] if is_single else list(zip(verdicts, response, knowledge, strict=True))
    return detector, rows


def explain_failures(detector: Any, rows: Sequence[Row], threshold: float | None) -> str:
    """Returns the message about the rows that fail; empty if none does.

    One line each for the verdict, the response with its spans, the knowledge, and a judge's reason.
    """
    from faithkit.pages.page_tables import escape_terminal
    from faithkit.reports.span_report import mark_spans

    failed = [(number, row) for number, row in enumerate(rows, start=1) if is_failure(row[0], threshold)]
    if not failed:
        return ""
    condition = "" if threshold is None else f", threshold={threshold:g}"
    lines = [f"{len(failed)} of {len(rows)} responses are not supported by their knowledge, by {detector!r}{condition}"]
    for number, (verdict, response, knowledge) in failed[:MAX_SHOWN]:
        probability = verdict.probability
        shown = "no probability" if probability is None else f"P(hallucinated) {probability:.3f}"
        passages = read_passages("knowledge", knowledge) if knowledge else []
        marks = [describe_mark(span) for span in add_evidence(verdict, passages, response).spans]
        reason = verdict.reason or (verdict.text if verdict.label == UNPARSED else "")
        lines += [
            f"{number}. {verdict.label}, {shown}",
            f"   response:  {mark_spans(response, verdict.spans, max_characters=MAX_CHARACTERS)}",
            f"   knowledge: {escape_terminal(' | '.join(passages) or '(none)', MAX_CHARACTERS)}",
            *(f"   mark:      {escape_terminal(mark, MAX_CHARACTERS)}" for mark in marks),
            *([f"   reason:    {escape_terminal(reason, MAX_CHARACTERS)}"] if reason else []),
        ]
    if len(failed) > MAX_SHOWN:
        lines.append(f"and {len(failed) - MAX_SHOWN:,} more")
    return "\n".join(lines)


def find_detector(by: Any) -> Any:
    """Loads the detector of a checkpoint, or checks a loaded one."""
    detector = _load(arguments.read_path(by, "by")) if isinstance(by, str | PathLike) else by
    if not any(hasattr(detector, name) for name in (*METHODS, "predict_examples")):
        raise arguments.wrong("by", "a critic, a tagger or a judge", by, 'give by="runs/..." or by=Critic.load(...)')
    return detector


def _judge(
    detector: Any, knowledge: Any, response: Any, history: Any, threshold: float | None, on_language: str = WARN
) -> Any:
    """Returns the detector's result for a response, or a list of results; warns of languages that it does not read."""
    is_single, languages = isinstance(response, str), languages_of(detector)
    if method := next((name for name in METHODS if hasattr(detector, name)), None):
        options = {} if threshold is None or method == "judge" else {"threshold": threshold}
        found = getattr(detector, method)(knowledge, response, history, **options)
    else:
        if is_single:
            rows = [(knowledge, response, history)]
        else:
            given = {"knowledge": knowledge, "response": response} | ({} if history is None else {"history": history})
            columns = read_columns(given, "response")
            rows = list(zip(*(columns.get(name, [None] * len(response)) for name in ROW), strict=True))
        join = number_passages if getattr(detector, "numbers_passages", False) else join_passages
        examples = [
            Example(
                id=str(number),
                source="assert_faithful",
                split="all",
                group=str(number),
                knowledge=join(read_passages("knowledge", row_knowledge)),
                history=tuple(
                    Turn(speaker=who or "user", text=text)
                    for who, text in read_turns("history", [turns] if isinstance(turns, str) else turns or [])
                ),
                response=row_response,
            )
            for number, (row_knowledge, row_response, turns) in enumerate(rows)
        ]
        predictions = list(detector.predict_examples(examples))
        found = predictions[0] if is_single else predictions
    if on_language == IGNORE:
        return found
    contexts = knowledge if is_list(knowledge) and not is_single else [knowledge] * (1 if is_single else len(response))
    texts = [join_passages(read_passages("knowledge", one)) if one is not None else "" for one in contexts]
    responses = [response] if is_single else response
    others = [find_other_language(*row, languages) for row in zip(responses, texts, strict=True)]
    report_other_languages(others, languages, on_language)
    if is_single:
        return replace(found, language=others[0])
    return [replace(one, language=language) for one, language in zip(found, others, strict=True)]


@lru_cache(maxsize=4)
def _load(path: str) -> Any:
    from faithkit_workflows.detectors.loading import load_detector

    return load_detector(path, precision="32-true", batch_tokens=None)


def is_failure(verdict: Prediction, threshold: float | None) -> bool:
    """Reports whether a response counts as hallucinated, or has no verdict that can be parsed."""
    probability = verdict.probability
    if verdict.label == UNPARSED or threshold is None or probability is None:
        return verdict.label in (HALLUCINATED, UNPARSED)
    return bool(probability >= threshold)
