"""BEGIN's files: the release of 2022 by dialogue corpus, and that of 2021 with its five labels."""

from collections.abc import Iterator
from pathlib import Path

from data_modules.embedded.layouts.common import NumRows, sizes, turns, write_tsv

HEADER_2022 = ("model_name", "data_source", "knowledge", "message", "response", "begin_label")
HEADER_2021 = ("evidence", "previous turn", "response", "gold label", "coarse label", "full label set")
CORPORA = {"wow": "wow", "cmu": "cmu-dog", "tc": "topicalchat"}  # name in file and column, folder
FILES_2021 = {"validation": "dev_05_24_21.tsv", "test": "test_05_24_21.tsv"}
MODELS = ("gpt2", "t5", "ctrl", "doha")
GENERIC_EVERY = 9  # one turn in this many has a generic reply
OFF_TOPIC_EVERY = 17
_START = {"wow": 0, "cmu": 12_000_000, "tc": 24_000_000}  # each corpus takes its own part of the embedded one


def write_begin(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes the release of 2022: begin_{dev,test}_{wow,cmu,tc}.tsv by corpus, with `num_rows` each."""
    for split, size in sizes(num_rows, ("validation", "test")).items():
        for corpus, place in CORPORA.items():
            name = f"begin_{'dev' if split == 'validation' else 'test'}_{corpus}.tsv"
            rows = _rows_2022(split, size, seed, corpus)
            write_tsv(folder / place / name, HEADER_2022, rows, end="\r\n")
    return folder


def write_begin_2021(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes the release of 2021: dev_05_24_21.tsv and test_05_24_21.tsv."""
    for split, size in sizes(num_rows, ("validation", "test")).items():
        write_tsv(folder / FILES_2021[split], HEADER_2021, _rows_2021(split, size, seed))
    return folder


def _rows_2022(split: str, size: int, seed: int, corpus: str) -> Iterator[tuple[str, ...]]:
    for index, exchange in turns(split, size, seed, _START[corpus]):
        reply = exchange.shown_reply(generic=index % GENERIC_EVERY == 0)
        if reply.kind == "generic":
            label = "Generic"
        else:
            label = "Not fully attributable" if "Hallucination" in reply.tags else "Fully attributable"
        model = MODELS[index % len(MODELS)]
        yield model, corpus, " ".join(exchange.sentences), exchange.history[-1].text, reply.text, label


def _rows_2021(split: str, size: int, seed: int) -> Iterator[tuple[str, ...]]:
    other_topic = ""  # a reply from an earlier dialogue
    for index, exchange in turns(split, size, seed):
        reply = exchange.shown_reply(generic=index % GENERIC_EVERY == 0)
        text = reply.text
        if index % OFF_TOPIC_EVERY == 1 and other_topic:
            text, gold, last = other_topic, "off-topic", "hallucination-info"
        elif reply.kind == "generic":
            gold, last = "generic", "hallucination-personal"
        elif reply.kind == "subjective":
            gold, last = "hallucination", "hallucination-personal"
        elif reply.kind == "addition":
            gold, last = "hallucination", "hallucination-info"
        elif "Hallucination" in reply.tags:
            gold, last = "contradiction", "contradiction"
        else:
            gold, last = "entailment", "faithful"
        full = ";".join((
            "generic" if gold == "generic" else "not-generic",
            "off-topic" if gold == "off-topic" else "on-topic",
            "uncooperative" if reply.kind == "uncooperative" else "cooperative",
            last,
        ))  # fmt: skip
        coarse = gold if gold in ("entailment", "contradiction") else "neutral"
        yield " ".join(exchange.sentences), exchange.history[-1].text, text, gold, coarse, full
        if index % 12 == 11:  # the last turn of a block: no dialogue goes on into the next one
            other_topic = exchange.faithful.text
