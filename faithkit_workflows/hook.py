"""Check what a coding agent says when it stops, by what its tools returned.

A stop hook of an agent runs `faithkit hook`: it reads the hook's JSON from standard input, and judges the last answer
of the transcript that it names. An answer that is not supported ends with exit code 2 and the marks on standard
error, which the agent reads; it is asked once, then it may stop.

faithkit hook < hook.json                     {"transcript_path": "session.jsonl", "stop_hook_active": false}
faithkit hook --checkpoint runs/... --threshold 0.7 < hook.json
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from faithkit.cli import DONE, FAILED, USER_ERROR, CommandParser, run_command
from faithkit.detector import DEFAULT
from faithkit.errors import UserError

TRANSCRIPT = "transcript_path"


def main(arguments: Sequence[str]) -> int:
    """Judges the last answer, and returns the exit code that the agent expects."""
    try:
        return _judge_last_answer(arguments)
    except UserError as error:  # exit code 2 would keep the agent from stopping
        print(f"faithkit hook: {error}", file=sys.stderr)
        return FAILED


def _judge_last_answer(arguments: Sequence[str]) -> int:
    parser = CommandParser("faithkit hook")
    parser.add_argument("--checkpoint", default=DEFAULT)
    parser.add_argument("--threshold", type=float, default=None)
    options = parser.parse_args(arguments)
    hint = f'the hook writes JSON such as {{"{TRANSCRIPT}": "session.jsonl"}}'
    try:
        asked = json.loads(sys.stdin.read())
    except ValueError as error:
        raise UserError(f"standard input is no JSON: {error}", hint=hint) from error
    if not isinstance(asked, dict) or not isinstance(asked.get(TRANSCRIPT), str):
        raise UserError(f"standard input has no {TRANSCRIPT}", hint=hint)
    if asked.get("stop_hook_active") is True:
        return DONE
    from data_modules.reading.conversations import HELPER, read_conversation_file
    from faithkit.evidence import describe_mark
    from faithkit.pages.page_tables import escape_terminal
    from faithkit_workflows.detectors.assertions import is_failure, judge_turns
    from faithkit_workflows.detectors.loading import load_checkpoint, with_threshold

    turns, _ = read_conversation_file(Path(asked[TRANSCRIPT]).expanduser())
    loaded = load_checkpoint({"checkpoint": options.checkpoint, "precision": "32-true"})
    is_precise = options.threshold is None and hasattr(loaded.detector, "set_aim")  # few supported answers are stopped
    loaded = with_threshold(loaded, options.threshold, options.checkpoint, "precision" if is_precise else None)
    turns = [turn for turn in turns if not turn["conversation"].endswith(HELPER)]
    found = next(iter(judge_turns(turns[-1:], by=loaded.detector)), None)
    if found is None or not is_failure(found, None):
        return DONE
    print("The last answer says what the tools did not return or do:", file=sys.stderr)
    for span in found.spans:
        print(f"- {escape_terminal(describe_mark(span), 400)}", file=sys.stderr)
    print("Correct these statements, or call the tool that shows them.", file=sys.stderr)
    return USER_ERROR


def run() -> None:
    """Runs the command line."""
    run_command(main, __doc__)


if __name__ == "__main__":
    run()
