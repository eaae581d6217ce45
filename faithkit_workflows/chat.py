"""Chat with a generator in the terminal: paste knowledge, ask, and see each answer with the critic's verdict.

faithkit chat checkpoint=runs/...                       answers alone; in a checkout python -m faithkit_workflows.chat
faithkit chat checkpoint=runs/... detector=runs/...     each with P(hallucinated), by a critic or a tagger
faithkit chat checkpoint=runs/... decoding=greedy       or beam, nucleus

At the prompt: /knowledge changes the knowledge, /forget the history, /quit ends; so do Ctrl-D and Ctrl-C.
"""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from data_modules.reading.fields import SEEKER, WIZARD
from faithkit.cli import run_script
from faithkit.errors import UserError
from faithkit.pages.page_tables import escape_terminal
from faithkit.records import FAITHFUL, Example, Turn

if TYPE_CHECKING:
    from faithkit_workflows.answering.strategies import Answerer

GROUPS = ("decoding",)
SETTINGS = "faithkit_workflows.settings.prediction:ChatSettings"
HELP = "/knowledge: other knowledge   /forget: clear the history   /quit: leave"
STYLES = {FAITHFUL: "green"}
Read = Callable[[str], str]  # shows a prompt and returns the typed line; EOFError ends the dialogue


def talk(answerer: "Answerer", read: Read, console: Console) -> None:
    """Runs the dialogue until the user leaves."""
    console.print(Text(HELP, style="dim"))
    knowledge, number = _read_knowledge(read, console), 0
    history: list[Turn] = []
    while True:
        line = read("you> ").strip()
        if line == "/quit":
            return
        if line == "/knowledge":
            knowledge = _read_knowledge(read, console)
        elif line == "/forget":
            history = []
            console.print(Text("history cleared", style="dim"))
        elif line.startswith("/"):
            console.print(Text(HELP, style="dim"))
        elif line:
            history.append(Turn(speaker=SEEKER, text=line))
            number += 1  # part of the id: a repeated question is sampled again
            asked = Example(
                id=f"turn {number}",
                source="chat",
                split="chat",
                group="chat",
                knowledge=knowledge,
                history=tuple(history),
                response="",
            )
            try:
                (answer,) = answerer.answer([asked])
            except UserError as error:
                history.pop()
                console.print(Text(str(error), style="yellow"))
                continue
            history.append(Turn(speaker=WIZARD, text=answer.text or "..."))
            # Control characters are shown, not sent to the terminal.
            console.print(Text(f"bot> {escape_terminal(answer.text)}" if answer.text else "bot> (nothing)"))
            if answer.label is not None:
                score = "" if answer.score is None else f", P(hallucinated) {answer.score:.2f}"
                console.print(Text(f"     {answer.label}{score}", style=STYLES.get(answer.label, "red")))


def _read_knowledge(read: Read, console: Console) -> str:
    """Reads lines up to an empty one; empty lines before the text are skipped."""
    console.print(Text("knowledge, ended by an empty line:", style="dim"))
    lines: list[str] = []
    while True:
        line = read("").strip()
        if line == "/quit":
            raise EOFError
        if line:
            lines.append(line)
        elif lines:
            return " ".join(lines)


def main(cfg: Any) -> None:
    """Loads the generator and the detector, then runs the dialogue."""
    from omegaconf import OmegaConf

    from faithkit.weights.resolve import check_available

    config: Any = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    for name in (config["checkpoint"], config["detector"]):
        check_available(name)
    from faithkit.inference.text import Decoding
    from faithkit_workflows.answering.strategies import build_answerer
    from faithkit_workflows.detectors.loading import load_detector
    from generation.generator import Generator

    decoding = Decoding(**config["decoding"])
    generator = Generator.load(config["checkpoint"], precision=config["precision"], max_length=config["max_length"])
    detector = None
    if config["detector"]:
        detector = load_detector(config["detector"], precision="32-true", batch_tokens=None)
    answerer = build_answerer(generator, decoding, config["control_tokens"], detector=detector)
    if sys.stdin.isatty():
        import readline  # noqa: F401 - importing it gives input() line editing and a history
    console = Console(highlight=False)
    try:
        talk(answerer, input, console)
    except EOFError:
        console.print()


def run() -> None:
    """Runs the command line."""
    run_script(main, "chat", __doc__ or "", GROUPS, SETTINGS)


if __name__ == "__main__":
    run()
