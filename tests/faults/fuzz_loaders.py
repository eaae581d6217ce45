"""Every loader: damaged files give whole examples or an explanation, and never a hang."""

import json
import random
from pathlib import Path
from typing import Any

from data_modules.datasets.ragtruth import RagTruth
from data_modules.reading.dataset import Source, read_examples
from data_modules.reading.rows import ReadReport
from data_modules.registry import SOURCES
from data_modules.weak.dropped import DroppedSupport
from data_modules.weak.wow import WeakWow, read_generations
from faithkit.errors import UserError
from faithkit.records import Example, Prediction
from faithkit_workflows.tables.scored_rows import write_scored
from faithkit_workflows.tables.user_table import open_user_table
from tests.data_modules.official_rows import CASES, encode
from tests.faults.campaign import Campaign, Wrong
from tests.faults.corpora import corpora, damage, write_files

WITHOUT_KNOWLEDGE = ("diahalu", "halueval")  # all rows of the one, some of the other


def attempt(rng: random.Random, folder: Path) -> None:
    name = rng.choice(list(corpora()))
    dataset, files = corpora()[name]
    _write_damaged(folder, files, rng)
    read_all(SOURCES[dataset](path=str(folder)))


def _write_damaged(folder: Path, files: dict[str, bytes], rng: random.Random) -> None:
    victim = rng.choice(list(files))
    write_files(folder, {**files, victim: damage(files[victim], Path(victim).suffix, rng)})


def read_all(source: Source) -> None:
    """Reads all splits, skipping bad rows and then stopping at the first.

    Raises:
        UserError: The files are refused.
        Wrong: A row is counted and skipped, though the strict reading knows of none; or an example is not whole.
    """
    refused: list[UserError] = []
    skipped = _read(source, "skip", refused)
    strict = _read(source, "stop", refused)
    if refused:
        raise refused[-1]
    if skipped or strict:
        raise Wrong("a row was skipped, and none was refused")


def _read(source: Source, on_bad_row: str, refused: list[UserError]) -> int:
    rejected = 0
    try:
        splits = source.split_names()
    except UserError as error:
        refused.append(error)
        return 0
    for split in splits:
        report = ReadReport(on_bad_row)
        try:
            for example in read_examples(source, split, report):
                check_example(example)
        except UserError as error:
            refused.append(error)
        json.dumps(report.rejects)
        rejected += report.counts["rejected: bad row"]
        if rejected < len(report.rejects):
            raise Wrong("rejects that are not counted")
    return rejected


def check_example(example: Example) -> None:
    """Checks what all that comes after reading relies on.

    Raises:
        Wrong: A field is of another kind, no text that can be written, or missing.
    """
    texts = {name: getattr(example, name) for name in ("id", "source", "split", "group", "knowledge", "response")}
    may_be_empty = {"knowledge"} if example.source in WITHOUT_KNOWLEDGE else set()
    empty = [
        name
        for name, value in texts.items()
        if not isinstance(value, str) or not (value.strip() or name in may_be_empty)
    ]
    if empty:
        raise Wrong(f"{empty[0]} is {texts[empty[0]]!r}")
    optional = [value for value in (example.reference, example.original, example.target) if value is not None]
    turns = [text for turn in example.history for text in (turn.speaker, turn.text)]
    for text in (*texts.values(), *optional, *turns, *example.tags, *example.negatives):
        if not isinstance(text, str):
            raise Wrong(f"no text: {text!r}")
        text.encode()
    for span in example.spans or ():
        if not (type(span.start) is type(span.end) is int and span.start < span.end and isinstance(span.label, str)):
            raise Wrong(f"{span}")
    if {"probability", "whole_knowledge"} & example.meta.keys() and example.source not in ("begin", "audit"):
        raise Wrong("a row's field took the place of one of ours")
    written = json.dumps(example.to_dict())
    if json.dumps(Example.from_dict(json.loads(written)).to_dict()) != written:
        raise Wrong("the cache would give another example")


def attempt_weak(rng: random.Random, folder: Path) -> None:
    """Damages the files of corpora that others are made of."""
    if rng.random() < 0.5:
        _write_damaged(folder, corpora()["ragtruth, embedded"][1], rng)
        source: Source = DroppedSupport(of=RagTruth(path=str(folder)))
    else:
        _write_damaged(folder, corpora()["wow, weak"][1], rng)
        source = WeakWow(path=str(folder))
    for on_bad_row in ("skip", "stop"):
        for split in source.split_names():
            list(read_examples(source, split, ReadReport(on_bad_row)))


def attempt_generations(rng: random.Random, folder: Path) -> None:
    replies: Any = {"generation": [{"dialogue": [["a lake", "b"], ["c d"]]}, {"dialogue": [["e"]]}]}
    _write_damaged(folder, {"generations/gpt2.json": json.dumps(replies).encode()}, rng)
    turns = [_turn("0", 0), _turn("0", 1), _turn("1", 0)]
    for _, _, reply in read_generations(folder, turns, ReadReport()):
        reply.encode()


def _turn(dialogue: str, place: int) -> Example:
    return Example(id=f"{dialogue}:{place}", source="wow", split="test", group=dialogue, knowledge="k", response="r")


OWN_ROWS: list[dict[str, Any]] = [
    {"knowledge": "a lake", "response": "deep", "said": "how?", "name": "1", "group": "g", "model": "m"},
    {"knowledge": "a hill", "response": "high", "said": "how?", "name": "2", "group": "g", "model": "n"},
]
OWN_COLUMNS = {"knowledge": None, "response": "response", "history": "said", "id": "name", "group": "group"}
NESTED: dict[str, Any] = {"knowledge": ["a", "b"], "said": [{"speaker": "seeker", "text": "how?"}], "score": 0.5}


def attempt_own_rows(rng: random.Random, folder: Path) -> None:
    """A table of one's own, read and written back."""
    suffix = rng.choice((".csv", ".tsv", ".jsonl", ".json"))
    rows = OWN_ROWS if suffix in (".csv", ".tsv") else [{**OWN_ROWS[0], **NESTED}, OWN_ROWS[1]]
    file = folder / f"rows{suffix}"
    file.write_bytes(damage(encode(rows, suffix).encode(), suffix, rng))
    refused = None
    for on_bad_row in ("skip", "stop"):
        try:
            read = open_user_table(str(file), OWN_COLUMNS, join="\n".join, by=["model"], on_bad_row=on_bad_row)
        except UserError as error:
            refused = error
            continue
        for example in read.examples:
            check_example(example)
        predictions = [_verdict(example) for example in read.examples]
        for target in (".csv", ".tsv", ".jsonl", ".json"):
            write_scored(folder / f"out{target}", read, predictions)
    if refused:
        raise refused


def _verdict(example: Example) -> Prediction:
    return Prediction(id=example.id, label="faithful", score=0.25)


assert set(CASES) <= {dataset for dataset, _ in corpora().values()}
CAMPAIGNS = [
    Campaign("datasets' files", attempt, share=3),
    Campaign("files that weak corpora are made of", attempt_weak, share=0.5),
    Campaign("models' generations", attempt_generations, share=0.3),
    Campaign("rows of one's own", attempt_own_rows),
]
