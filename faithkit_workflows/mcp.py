"""Offer the check as a tool to agents, by the Model Context Protocol, over standard input and output.

faithkit mcp                              the default detector
faithkit mcp --checkpoint runs/...        whatever `faithkit score` takes

An agent's configuration names the command: {"command": "faithkit", "args": ["mcp"]}. The tool `check_answer` takes a
context, an answer and a question, and returns label, probability, threshold and the parts that are not supported.
"""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from faithkit.cli import CommandParser, run_command
from faithkit.detector import DEFAULT, DETECTORS
from faithkit.errors import UserError, raise_problems
from faithkit.packages import require


def main(arguments: Sequence[str]) -> None:
    """Creates the server with its tool, and serves until standard input ends.

    Raises:
        UserError: The checkpoint cannot be loaded.
    """
    parser = CommandParser("faithkit mcp")
    parser.add_argument("--checkpoint", default=DEFAULT)
    checkpoint = parser.parse_args(arguments).checkpoint
    require("faithkit mcp")
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.types import ToolAnnotations

    from faithkit_workflows.serve.schemas import CheckResult, DialogueTurn, Passage, Probability, Row, Text
    from faithkit_workflows.serve.served_model import Asked, ServedModel
    from faithkit_workflows.settings.engines import check_checkpoint

    raise_problems(check_checkpoint("--checkpoint", checkpoint, *DETECTORS))
    model = ServedModel(checkpoint, checkpoint, {"threshold": None, "precision": "32-true", "labels": None})
    model.load()
    if model.problem is not None:
        raise UserError(model.problem, place=checkpoint, hint="faithkit mcp --checkpoint PATH")
    server = MCPServer("faithkit")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
    def check_answer(
        context: Annotated[list[Text], Field(min_length=1)],
        answer: Text,
        question: str | None = None,
        history: list[DialogueTurn] | None = None,
        threshold: Probability | None = None,
    ) -> CheckResult:
        """Checks whether an answer is supported by its context, and which parts of it are not.

        Args:
            context: The passages that the answer must rest on.
            answer: The answer to check.
            question: What the answer replies to.
            history: The turns before the answer, the oldest first.
            threshold: P(hallucinated) from which the label is hallucinated; leave it out for the model's own.
        """
        passages: list[Passage | str] = [Passage(text=text) for text in context]
        row = Row(knowledge=passages, response=answer, question=question, history=history, threshold=threshold)
        (verdict,) = model.judge([Asked(row, row.to_example("answer", model.join))])
        if isinstance(verdict, Exception):
            raise ToolError(f"no verdict: {verdict}")
        return verdict

    server.run("stdio")


def run() -> None:
    """Runs the command line."""
    run_command(main, __doc__)


if __name__ == "__main__":
    run()
