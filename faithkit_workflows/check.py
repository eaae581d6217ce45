"""Check one answer: is it supported by its context, and which parts are not?

faithkit check --context docs/examples/manual.txt "The warranty lasts 36 months."
faithkit check --context manual.txt --context terms.txt --question "How long is the warranty?" < answer.txt
faithkit check --context manual.txt --explain "..."      also how each value of the answer was compared
faithkit check --context manual.txt --json "..."         verdict, label, probability, threshold, model, spans as JSON
faithkit check context=manual.txt question="How long?" answer="36 months."          options can be written so, too
faithkit check --context manual.txt --fail "..."         exits with 1 if the answer is hallucinated
faithkit check --context manual.txt --aim precision "..."        fewer false alarms; or recall: more is found
faithkit check --context manual.txt --checkpoint runs/... "..."          another detector than the default
faithkit check --context manual.txt --on-language stop "..."    a language that the detector does not read is an error
faithkit check --messages conversation.json          each turn of an assistant with tools, by what they returned

The context is one file or several, such as retrieved passages; `--context -` reads it from standard input. Without an
answer on the command line, it is read from standard input. A table of answers: faithkit score FILE.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faithkit.cli import DONE, FAILED, CommandParser, run_command
from faithkit.detector import DEFAULT, DETECTORS, name_others
from faithkit.errors import UserError, raise_problems
from faithkit.languages import IGNORE, ON_LANGUAGE, WARN, find_other_language, languages_of, report_other_languages

if TYPE_CHECKING:
    from faithkit.records import Example, Prediction

STANDARD_INPUT = "-"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Reads the command line."""
    parser = CommandParser("faithkit check")
    parser.add_argument("positional", nargs="?", default=None, metavar="answer")
    parser.add_argument("--answer", "--response", default=None)
    parser.add_argument("--context", "--knowledge", action="append", default=[], metavar="FILE")
    parser.add_argument("--question", default=None)
    parser.add_argument("--messages", default=None, metavar="FILE")
    parser.add_argument("--checkpoint", default=DEFAULT)
    parser.add_argument("--threshold", type=float, default=None)
    parser.add_argument("--aim", choices=("balanced", "recall", "precision"), default=None)
    parser.add_argument("--on-language", "--on_language", choices=ON_LANGUAGE, default=WARN)
    parser.add_argument("--explain", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--fail", action="store_true")
    options = parser.parse_args(arguments)
    if options.positional is not None:
        if options.answer is not None:
            raise UserError("the answer is given twice", hint="leave --answer out, or the text without an option")
        options.answer = options.positional
    if options.messages is not None:
        if options.context or options.answer or options.question or options.explain or options.aim:
            problem = "--messages takes the place of context, question and answer, and of --explain and --aim"
            raise UserError(problem, hint="faithkit check --messages FILE")
        return options
    options.answer = STANDARD_INPUT if options.answer is None else options.answer
    if not options.context:
        raise UserError("no context is given", hint='faithkit check --context FILE "answer"; FILE may be -')
    if [options.answer, *options.context].count(STANDARD_INPUT) > 1:
        raise UserError(
            "only one of answer and context can come from standard input", hint="name a file for the context"
        )
    return options


def read_text(path: str, what: str) -> str:
    """Reads a text file, or standard input for `-`.

    Raises:
        UserError: It cannot be read, or has no text.
    """
    try:
        text = sys.stdin.read() if path == STANDARD_INPUT else Path(path).expanduser().read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"the {what} is not UTF-8", place=path, hint="save it as UTF-8 text") from error
    except (OSError, ValueError) as error:
        hint = "--context takes a file's name; give a text as: echo TEXT | faithkit check --context - ANSWER"
        raise UserError(
            f"the {what} cannot be read: {getattr(error, 'strerror', None) or error}", place=path, hint=hint
        ) from error
    if not text.strip():
        raise UserError(f"the {what} is empty", place="standard input" if path == STANDARD_INPUT else path)
    return text.strip()


def judge(options: argparse.Namespace) -> tuple["Prediction", "Example", Any]:
    """Judges the answer, and returns the result with its evidence, the judged row, and the loaded detector."""
    from faithkit.evidence import add_evidence
    from faithkit.records import Example, Turn, join_passages, number_passages
    from faithkit_workflows.settings.engines import check_checkpoint

    raise_problems(check_checkpoint("--checkpoint", options.checkpoint, *DETECTORS))
    from faithkit_workflows.detectors.loading import kind_of, load_checkpoint, with_threshold

    passages = list(dict.fromkeys(read_text(path, "context") for path in options.context))
    answer = read_text(STANDARD_INPUT, "answer") if options.answer == STANDARD_INPUT else options.answer
    if not answer.strip():
        raise UserError("the answer is empty", hint='faithkit check --context FILE "answer"')
    if options.threshold is not None and not 0 <= options.threshold <= 1:
        raise UserError("--threshold is a probability from 0 to 1", hint="for example --threshold 0.5")
    join = number_passages if kind_of(options.checkpoint).numbers_passages else join_passages
    example = Example(
        id="answer",
        source="check",
        split="all",
        group="answer",
        knowledge=join(passages),
        history=(Turn(speaker="user", text=options.question),) if options.question else (),
        response=answer,
    )
    config = {"checkpoint": options.checkpoint, "precision": "32-true"}
    loaded = with_threshold(load_checkpoint(config), options.threshold, options.checkpoint, options.aim)
    language, languages = None, languages_of(loaded.detector)
    if options.on_language != IGNORE:
        language = find_other_language(answer, example.knowledge, languages)
        report_other_languages([language], languages, options.on_language)
    (prediction,) = loaded.detector.predict_examples([example])
    return add_evidence(replace(prediction, language=language), passages, answer), example, loaded


def show(prediction: "Prediction", example: "Example", loaded: Any, options: argparse.Namespace) -> None:
    """Prints the verdict, the answer with the unsupported parts in double brackets, and why they are marked."""
    from faithkit.evidence import describe_mark
    from faithkit.pages.page_tables import escape_terminal
    from faithkit.reports.span_report import mark_spans

    threshold = loaded.models[0].threshold or "none"
    verdict = prediction.verdict(getattr(loaded.detector, "unsure_from", None))
    if options.json:
        spans = [
            {
                "start": span.start,
                "end": span.end,
                "text": span.text,
                "type": span.type,
                "relation": span.relation,
                "element": span.element,
                "probability": span.probability,
                "evidence": asdict(span.evidence) if span.evidence else None,
            }
            for span in prediction.spans
        ]
        found = {"verdict": verdict, "label": prediction.label, "probability": prediction.score, "spans": spans}
        about = {"threshold": getattr(loaded.detector, "threshold", None), "model": options.checkpoint}
        about |= {"language": prediction.language} if prediction.language else {}
        print(json.dumps(found | about, ensure_ascii=False))
        return
    probability = "" if prediction.score is None else f", P(hallucinated) {prediction.score:.2f}"
    print(f"{verdict}{probability} (model {options.checkpoint}; threshold {threshold.partition(',')[0]})")
    print(mark_spans(example.response, prediction.spans))
    for span in prediction.spans:
        print(f"  {escape_terminal(describe_mark(span), 400)}")
    if (rates := getattr(loaded.detector, "rates", None)) is not None:
        recall, alarms = f"{rates['recall']:.0%}", f"{rates['false_alarms']:.0%}"
        print(f"On other answers this threshold finds {recall} of the hallucinated ones, with {alarms} false alarms.")
    if options.explain:  # the values of the answer, and those of the context that each was compared with
        from critic.support.values import compare_values
        from data_modules.encoding.encoder import question_text

        pairs = compare_values(example.knowledge, example.response, question_text(example))
        print("values of the answer, by the default detector's comparison:" if pairs else "the answer has no value")
        for pair in pairs:
            line = f"{pair.value.text} ({pair.value.kind}): {pair.relation}"
            if pair.closest is not None:
                line += f"; the context has {pair.closest.text}{', near the same words' if pair.shares_head else ''}"
            print(f"  {escape_terminal(line, 300)}")
    print(name_others(options.checkpoint))


def main(arguments: Sequence[str]) -> int:
    """Judges one answer or the turns of conversations, shows the verdicts, and returns the exit code."""
    options = parse(arguments)
    if options.messages is None:
        prediction, example, loaded = judge(options)
        show(prediction, example, loaded, options)
        return FAILED if options.fail and prediction.label == "hallucinated" else DONE
    from data_modules.reading.conversations import read_conversation_file
    from faithkit.evidence import describe_mark
    from faithkit.pages.page_tables import escape_terminal
    from faithkit.reports.span_report import mark_spans
    from faithkit_workflows.detectors.assertions import judge_turns

    turns, notes = read_conversation_file(Path(options.messages).expanduser())
    judging: dict[str, Any] = {"threshold": options.threshold, "on_language": options.on_language}
    found = judge_turns(turns, by=options.checkpoint, **judging)
    for prediction, turn in zip(found, turns, strict=True):
        if options.json:
            print(json.dumps({**turn, **prediction.to_dict()}, ensure_ascii=False))
            continue
        probability = "" if prediction.score is None else f", P(hallucinated) {prediction.score:.2f}"
        print(f"{escape_terminal(turn['id'], 200)}: {prediction.label}{probability}")
        print(f"  {mark_spans(turn['answer'], prediction.spans)}")
        for span in prediction.spans:
            print(f"    {escape_terminal(describe_mark(span), 400)}")
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    return FAILED if options.fail and any(one.label == "hallucinated" for one in found) else DONE


def run() -> None:
    """Runs the command line."""
    run_command(main, __doc__)


if __name__ == "__main__":
    run()
