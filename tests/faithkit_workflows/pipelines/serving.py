"""A server with models that write, judge and hallucinate by rules, and runs of construct.py that use it."""

import json
from pathlib import Path
from typing import Any

from faithkit_workflows import construct
from tests.faithkit.inference.server import ChatServer
from tests.running import compose

WRITER, OTHER, JUDGE = "writer", "other", "judge"
REPLY = "I heard that it was built by seven sailors."
INDUCED = "As far as I have heard from those who know, it was built by seven sailors."
WRONG = "built by seven sailors"


def say(messages: list[dict[str, str]], seed: int | None, sample: int) -> str:
    """Replies by what the prompt asks for."""
    asked = messages[-1]["content"]
    if asked.rstrip().endswith("Judgement:"):
        judged = asked.rpartition("Generated reply:")[2]
        return f'Yes. The part "{WRONG}" is nowhere.' if WRONG in judged else "No. The knowledge says so."
    if asked.rstrip().endswith("Hallucinated reply:"):
        return f'{INDUCED}\n\nExplanation:\nThe hallucinated part of the reply is "{WRONG}": not in the knowledge.'
    if "Structured data" in asked:
        return "It is a fine place. It has no known taste."
    return REPLY


def server(**options: Any) -> ChatServer:
    return ChatServer(answer=say, models=(WRITER, OTHER, JUDGE), **options)


def overrides(served: ChatServer, folder: Path, *more: str) -> list[str]:
    return [
        *("engine=openai", f"engine.base_url={served.url}", f"engine.model={JUDGE}", f"models=[{WRITER},{OTHER}]"),
        *(f"run_dir={folder}", f"engine.cache={folder.parent / 'replies.sqlite'}", "engine.max_retries=1"),
        *("pipeline.embedded_rows={train: 60, test: 60}", *more),
    ]


def construct_here(*given: str) -> None:
    """`python construct.py ...` in this process."""
    construct.main(compose("construct", *construct.with_resumed_pipeline(given)))


def manifest(folder: Path) -> dict[str, Any]:
    found = json.loads((folder / "manifest.json").read_text())
    assert isinstance(found, dict)
    return found


def steps(folder: Path) -> dict[str, dict[str, Any]]:
    return {step["name"]: step for step in manifest(folder)["steps"]}
