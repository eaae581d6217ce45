"""The audit of FaithDial's authors: human labels on the gold and the models' responses of two corpora."""

from collections.abc import Iterator
from pathlib import Path

from data_modules.embedded.layouts.common import NumRows, sizes, turns, write_csv

CORPORA = ("wow", "cmu")
MODELS = ("CTRL", "DoHA", "GPT2")
GENERIC_EVERY = 9  # one turn in this many has a generic reply
# Slips of the annotators, as the published files have them: a loader must know them.
SLIPS = {
    "entailment,uncooperative": ("entailment,uncooperative", "entailment. uncooperative", "entailmentt,uncooperative")
}


def write_audit(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes gold/{wow,cmu}.csv and {CTRL,DoHA,GPT2}/*_processed_{wow,cmu}.csv of the test split, `num_rows` each."""
    size = sizes(num_rows, ("test",)).get("test", 0)
    for place, corpus in enumerate(CORPORA):
        header = ("evidence", "history", "response", "BEGIN", "VRM")
        write_csv(folder / "gold" / f"{corpus}.csv", header, _gold(size, seed, place * 12_000_000, corpus))
        for number, model in enumerate(MODELS, start=1):
            name = model.lower()
            header = ("knowledge", "history", name, "begin_label", "vrm_label")
            rows = _model(size, seed, (place + 2 * number) * 12_000_000)
            write_csv(folder / model / f"{name}_processed_{corpus}.csv", header, rows)
    return folder


def _gold(size: int, seed: int, start: int, corpus: str) -> Iterator[tuple[str, ...]]:
    separator = ",\n" if corpus == "cmu" else ","
    for index, exchange in turns("test", size, seed, start):
        reply = exchange.shown_reply(generic=index % GENERIC_EVERY == 0)
        if "Hallucination" in reply.tags:
            label = "Partial Hallucination" if "Entailment" in reply.tags else "Hallucination"
        else:
            label = reply.tags[-1]
        vrm = separator.join(tag.replace("Acknowledgment", "Ack.") for tag in reply.vrm)
        yield " ".join(exchange.sentences), exchange.history[-1].text, reply.text, label, vrm


def _model(size: int, seed: int, start: int) -> Iterator[tuple[str, ...]]:
    for index, exchange in turns("test", size, seed, start):
        reply = exchange.shown_reply(generic=index % GENERIC_EVERY == 0)
        label = ",".join(sorted(tag.lower() for tag in reply.tags))
        if label in SLIPS and index % 10 == 0:
            label = SLIPS[label][index // 10 % 3]
        vrm = ",".join(tag.lower().replace("acknowledgment", "ack.") for tag in reply.vrm)
        yield " ".join(exchange.sentences), exchange.history[-1].text, reply.text, label, vrm
