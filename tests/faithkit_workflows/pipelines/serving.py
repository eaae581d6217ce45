"""A server with models that write, judge and hallucinate by rules, and runs of construct.py that use it."""

import csv
import json
from pathlib import Path
from typing import Any

from faithkit.files.jsonl import read_jsonl
from faithkit_workflows import construct
from tests.faithkit.inference.server import ChatServer
from tests.running import asking, commanded, compose

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
    given = [f"models=[{WRITER},{OTHER}]", f"run_dir={folder}", "pipeline.embedded_rows={train: 60, test: 60}", *more]
    return asking(served.url, "engine.max_retries=1", *given, model=JUDGE, cache=folder.parent / "replies.sqlite")


def construct_here(*given: str) -> None:
    """`python construct.py ...` in this process."""
    construct.main(compose("construct", *construct.with_resumed_pipeline(given)))


def resume(folder: Path, *more: str) -> None:
    """`python construct.py resume=FOLDER ...` in this process."""
    with commanded((f"resume={folder}", *more)):
        construct_here(f"resume={folder}", *more)


def sheet(path: Path) -> list[dict[str, str]]:
    """The rows of a table that people fill in."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def fill_sheet(path: Path, rows: list[dict[str, str]], **options: Any) -> None:
    """Saves a table as a person does."""
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, rows[0], **options)
        writer.writeheader()
        writer.writerows(rows)


def manifest(folder: Path) -> dict[str, Any]:
    found = json.loads((folder / "manifest.json").read_text())
    assert isinstance(found, dict)
    return found


def step_rows(folder: Path, name: str) -> list[dict[str, Any]]:
    return list(read_jsonl(folder / steps(folder)[name]["file"]))


def steps(folder: Path) -> dict[str, dict[str, Any]]:
    return {step["name"]: step for step in manifest(folder)["steps"]}
