"""Labelled pairs of sentences and judged responses in their official layouts.

NLI corpora, DECODE, HalluDial, BEGIN, FaithDial's audit, HaluEval and DiaHalu.
"""

import json
import re
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from data_modules.embedded.corpus import Exchange
from data_modules.embedded.layouts.common import (
    PART,
    Layout,
    NumRows,
    claim,
    dialogues,
    nli_pair,
    sizes,
    turns,
    write_csv,
    write_json,
    write_json_line,
    write_tsv,
)
from data_modules.reading.dialogues import write_history
from faithkit.files.jsonl import write_jsonl

GENRES = (
    ("fiction", "government", "slate", "telephone", "travel"),
    ("facetoface", "letters", "nineeleven", "oup", "verbatim"),
)


def conjnli_rows(split: str, size: int, seed: int, start: int) -> Iterator[tuple[str, str, str]]:
    for index, exchange in turns(split, size, seed, start):
        premise, hypothesis, label = nli_pair(exchange)
        # Cells begin with quotation marks that quote no cell, as those of 245 rows of the release.
        yield re.sub(r"^(\w+)", r'"\1"', premise) if index % 60 == 3 else premise, hypothesis, label


def _gold_label(label: str, index: int, split: str) -> str:
    """Returns `-` where no label has three of five votes; a training pair has one vote."""
    return "-" if split != "train" and index % 40 == 7 else label


def mnli_rows(split: str, size: int, seed: int, start: int) -> Iterator[dict[str, Any]]:
    genres = GENRES[start // PART]  # the mismatched ones in the second part
    for index, exchange in turns(split, size, seed, start):
        premise, hypothesis, label = nli_pair(exchange)
        yield {
            "genre": genres[index % 5],
            "gold_label": _gold_label(label, index, split),
            "pairID": f"{index}{label[0]}",
            "promptID": str(index),
            "sentence1": premise,
            "sentence2": hypothesis,
        }


def snli_rows(split: str, size: int, seed: int, start: int) -> Iterator[dict[str, Any]]:
    for index, exchange in turns(split, size, seed, start):
        premise, hypothesis, label = nli_pair(exchange)
        yield {
            "gold_label": _gold_label(label, index, split),
            "pairID": f"{4_000_000 + index}.jpg#{index % 5}r1{label[0]}",
            "sentence1": premise,
            "sentence2": hypothesis,
        }


DNLI_LABELS = {"entailment": "positive", "neutral": "neutral", "contradiction": "negative"}
CONTRADICTIONS = ("contradiction", "entity_swap", "number_swap")


def _spaced(text: str) -> str:
    return re.sub(r"([.,!?])", r" \1", text.lower())


def dnli_rows(split: str, size: int, seed: int, start: int) -> Iterator[dict[str, Any]]:
    """Makes DialogueNLI's rows: lower-case, spaced sentences."""
    types = {"positive": "matchingtriple_up", "neutral": "miscutterance_up", "negative": "e2swap_up"}
    for index, exchange in turns(split, size, seed, start):
        premise, hypothesis, nli = nli_pair(exchange)
        label = DNLI_LABELS[nli]
        yield {
            "label": label,
            "sentence1": _spaced(premise),
            "sentence2": _spaced(hypothesis),
            "dtype": types[label],
            "id": f"dialogue_nli_{'dev' if split == 'validation' else split}_{index}",
        }


def decode_rows(split: str, size: int, seed: int, start: int) -> Iterator[dict[str, Any]]:
    """Makes DECODE's dialogues: in half of them the last turn contradicts an earlier one of its speaker."""
    num_written = 0
    for number, exchanges in dialogues(split, 12 * (size + 12), seed, start):
        if num_written == size:
            return
        if len(exchanges) > 1:
            *earlier, last = exchanges
            texts = [text for exchange in earlier for text in (exchange.history[-1].text, exchange.faithful.text)]
            texts.append(last.history[-1].text)
            contradicted = next(
                (i for i, exchange in enumerate(earlier) if exchange.hallucinated.kind in CONTRADICTIONS), None
            )
            if (number % 2 == 0) and contradicted is not None:
                texts.append(f"{last.faithful.text} {claim(last, earlier[contradicted].wrong_clause)}")
                indices = [2 * contradicted + 1, len(texts) - 1]
            else:
                texts.append(f"{last.faithful.text} {claim(last, earlier[0].true_clause)}")
                indices = []
            name = f"embedded:{seed}:{split}:{number}"
            yield {
                "conversation_id": f"{uuid.uuid5(uuid.NAMESPACE_URL, name)}#truncated#{len(texts) - 2}",
                "record_id": str(uuid.uuid5(uuid.NAMESPACE_URL, name + ":record")),
                "turns": [{"turn_id": i, "agent_id": i % 2, "text": text} for i, text in enumerate(texts)],
                "is_contradiction": bool(indices),
                "aggregated_contradiction_indices": indices,
            }
            num_written += 1


def write_halludial(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes HalluDial: a train and a test file for each scenario, which share `num_rows`."""
    first = 0  # dialogues are numbered through all files
    for split, size in sizes(num_rows, ("train", "test")).items():
        induced = max(2, round(size * 3 / 8)) if size > 2 else 0  # the share of the release
        for scenario, wanted in (("spontaneous", size - induced), ("induced", induced)):
            if wanted:
                rows = list(_rows(scenario, split, wanted, seed, first))
                write_json(folder / scenario / f"{scenario}_{split}.json", rows)
                first = rows[-1]["dialogue_id"] + 1
    return folder


def _rows(scenario: str, split: str, size: int, seed: int, first: int) -> Iterator[dict[str, Any]]:
    start = PART if scenario == "induced" else 0
    written = 0
    for place, (number, exchanges) in enumerate(dialogues(split, size, seed, start)):
        for turn, exchange in enumerate(exchanges):
            # A natural response, a quarter of them hallucinated; or the induced one and the reference.
            is_wrong = exchange.hallucinated_first and (number + turn) % 2
            natural = exchange.hallucinated if is_wrong else exchange.faithful
            for reply in (exchange.hallucinated, exchange.faithful) if scenario == "induced" else (natural,):
                if written == size:
                    return
                written += 1
                # A target is a sentence after its verdict; an induced row's reference is known to be right.
                verdict, _, reason = reply.target.partition(", ")
                is_known = scenario == "induced" and verdict == "No"
                yield {
                    "dialogue_id": first + place,
                    "knowledge": " ".join(exchange.sentences),
                    "dialogue_history": write_history(exchange.history, " "),
                    "turn": turn,
                    "response": reply.text,
                    "target": "No." if is_known else f"{verdict}. {reason[0].upper()}{reason[1:]}",
                }


BEGIN_HEADER = ("model_name", "data_source", "knowledge", "message", "response", "begin_label")
BEGIN_MODELS = ("gpt2", "t5", "ctrl", "doha")
GENERIC_EVERY = 9  # one turn in this many has a generic reply


def begin_rows(split: str, size: int, seed: int, start: int) -> Iterator[tuple[str, ...]]:
    """Makes the rows of a corpus in the release of 2022."""
    for index, exchange in turns(split, size, seed, start):
        reply = exchange.shown_reply(generic=index % GENERIC_EVERY == 0)
        if reply.kind == "generic":
            label = "Generic"
        else:
            label = "Not fully attributable" if "Hallucination" in reply.tags else "Fully attributable"
        model, corpus = BEGIN_MODELS[index % len(BEGIN_MODELS)], ("wow", "cmu", "tc")[start // PART]
        is_blank = corpus == "cmu" and index % 20 == 3  # as two of 416 in the release
        message = "" if is_blank else exchange.history[-1].text
        yield model, corpus, " ".join(exchange.sentences), message, reply.text, label


GOLD_HEADER = ("evidence", "history", "response", "BEGIN", "VRM")
# Slips of the annotators, as the published files have them: a loader must know them.
SLIPS = {
    "entailment,uncooperative": ("entailment,uncooperative", "entailment. uncooperative", "entailmentt,uncooperative"),
    "hallucination": ("hallucination", "hallucination", "hallucinated"),
}
# Rows that are dropped, in files of the third corpus: blank ones, one without a label, one without knowledge.
IRREGULAR = (("",) * 5, ("A lake.", "Where?", "There.", "", ""), ("", "Where?", "There.", "generic", "edification"))


def write_audit(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes gold/{wow,cmu}.csv and {CTRL,DoHA,GPT2}/*_processed_{wow,cmu}.csv of the test split, `num_rows` each.

    The files of Topical-Chat have irregular rows only.
    """
    size = sizes(num_rows, ("test",)).get("test", 0)
    for place, corpus in enumerate(("wow", "cmu")):
        write_csv(folder / "gold" / f"{corpus}.csv", _gold(size, seed, place * PART, corpus), header=GOLD_HEADER)
        for number, model in enumerate(("CTRL", "DoHA", "GPT2"), start=1):
            name = model.lower()
            header = ("knowledge", "history", name, "begin_label", "vrm_label")
            rows = _model(size, seed, (place + 2 * number) * PART)
            write_csv(folder / model / f"{name}_processed_{corpus}.csv", rows, header=header)
            other = "topicalchat" if model == "CTRL" else "topical"
            write_csv(folder / model / f"{name}_processed_{other}.csv", IRREGULAR, header=header)
    write_csv(folder / "gold" / "topical.csv", IRREGULAR, header=GOLD_HEADER)
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


def write_halueval(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes all four files with about equal parts of the examples of all splits, since there are no splits."""
    wanted = sizes(num_rows)
    for place, (file, write) in enumerate(HALUEVAL_FILES.items()):
        rows: list[dict[str, Any]] = []
        for split, size in wanted.items():
            share = -(-size // len(HALUEVAL_FILES))
            rows += write(split, share if file == "general" else -(-share // 2), seed, place * PART)
        if file == "general":  # some rows have no ID, as in the release
            rows = [{"ID": str(number) if number % 29 else "", **row} for number, row in enumerate(rows, start=1)]
        write_jsonl(folder / f"{file}_data.json", rows)
    return folder


def _qa(split: str, size: int, seed: int, start: int) -> Iterator[dict[str, Any]]:
    for index, exchange in turns(split, size, seed, start):
        wrong = claim(exchange, exchange.wrong_clause)
        # Some hallucinated answers are a whole sentence more: they are longer, as the corpus's are.
        if exchange.hallucinated.kind == "subjective" or index % 3 == 0:
            wrong = exchange.hallucinated.text
        yield {
            "knowledge": " ".join(exchange.sentences),
            "question": exchange.history[-1].text,
            "right_answer": claim(exchange, exchange.true_clause),
            "hallucinated_answer": wrong,
        }


def _dialogue(split: str, size: int, seed: int, start: int) -> Iterator[dict[str, Any]]:
    for _, exchange in turns(split, size, seed, start):
        yield {
            "knowledge": " ".join(exchange.sentences),
            "dialogue_history": write_history(exchange.history, " "),
            "right_response": exchange.faithful.text,
            "hallucinated_response": exchange.hallucinated.text,
        }


def _summarization(split: str, size: int, seed: int, start: int) -> Iterator[dict[str, Any]]:
    written = 0
    for _, exchanges in dialogues(split, 12 * (size + 12), seed, start):
        false = next((e for e in exchanges if e.hallucinated.kind in CONTRADICTIONS), None)
        if false is None:
            continue  # only what contradicts the document is wrong wherever else the document speaks of it
        if written == size:
            return
        written += 1
        yield {
            "document": " ".join(" ".join(exchange.sentences) for exchange in exchanges),
            "right_summary": " ".join(claim(one, one.true_clause) for one in exchanges),
            "hallucinated_summary": " ".join(
                claim(one, one.wrong_clause if one is false else one.true_clause) for one in exchanges
            ),
        }


def _general(split: str, size: int, seed: int, start: int) -> Iterator[dict[str, Any]]:
    for index, exchange in turns(split, size, seed, start):
        is_wrong = index % 5 == 0
        reply = exchange.hallucinated if is_wrong else exchange.faithful
        yield {
            "user_query": f"{' '.join(exchange.sentences)} {exchange.history[-1].text}",
            "chatgpt_response": reply.text,
            "hallucination": "yes" if is_wrong else "no",
            "hallucination_spans": [reply.text[start:end] for start, end, _ in reply.marks],
        }


HALUEVAL_FILES = {"qa": _qa, "dialogue": _dialogue, "summarization": _summarization, "general": _general}


DOMAINS = ("World Knowledge", "Task-oriented Style", "Chit-Chat", "Reasoning")
# The type of a wrong reply by its kind; the others are non-factual about the world, incoherent within a dialogue.
TYPES = {"addition": "Overreliance", "subjective": "Irrelevance"}
DIAHALU_MODELS = ("ChatGPT3.5", "GPT4")
_NUM_ROUNDS = 6  # the fewest of a dialogue
_HALLUCINATED = (0, 2, 5, 7)  # of every nine dialogues of a domain; the last one's explanation is not whole JSON


def write_diahalu(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes one file with the dialogues of all splits, since there are no splits; `num_rows` counts dialogues."""
    rows = (row for split, size in sizes(num_rows).items() for row in _diahalu_rows(split, size, seed))
    write_jsonl(folder / "DiaHalu.jsonl", ({"ID": number, **row} for number, row in enumerate(rows, start=1)))
    return folder


def _diahalu_rows(split: str, size: int, seed: int) -> Iterator[dict[str, Any]]:
    talks = _talks(split, size, seed)
    for number in range(size):
        place, domain = number // len(DOMAINS), DOMAINS[number % len(DOMAINS)]
        is_wrong = place % 9 in _HALLUCINATED
        if domain == "Reasoning":
            rounds, places = _sums(Random(f"sums:{seed}:{split}:{number}"), is_wrong)
        else:
            exchanges = next(talks)
            rounds, places = [], []
            for turn, exchange in enumerate(exchanges, start=1):
                is_here = is_wrong and turn == place % len(exchanges) + 1
                reply = exchange.hallucinated if is_here else exchange.faithful
                told = f"I have read this: {' '.join(exchange.sentences)} {exchange.history[-1].text}"
                rounds.append((told, reply.text))
                if is_here:  # types are spelt in several ways, as the files do
                    is_fact = domain == "World Knowledge"
                    conflict = ("non-factual", "Non-Factual") if is_fact else ("Incoherence", "incoherence")
                    name = TYPES.get(reply.kind, conflict[place % 2])
                    places.append((turn, name, reply.target.partition(", ")[2]))
        explanation = f'["{places[0][2]}' if place % 9 == _HALLUCINATED[-1] else json.dumps([p[2] for p in places])
        yield {
            "text": "\n".join(f"A{i}: {a}\nB{i}: {b}" for i, (a, b) in enumerate(rounds, start=1)),
            "label": int(is_wrong),
            "index": json.dumps([[number, name] for number, name, _ in places], separators=(",", ":")),
            "domain": domain,
            "explaination": explanation,
            "source": "embedded",
            "Which LLM": DIAHALU_MODELS[place % len(DIAHALU_MODELS)],
        }


def _talks(split: str, size: int, seed: int) -> Iterator[list[Exchange]]:
    """Talks of `_NUM_ROUNDS` and more turns: dialogues are joined until they have as many."""
    joined: list[Exchange] = []
    for _, exchanges in dialogues(split, (size + 1) * 12, seed):  # 12: more than the turns of a dialogue
        joined += exchanges
        if len(joined) >= _NUM_ROUNDS:
            yield joined
            joined = []


def _sums(random: Random, is_wrong: bool) -> tuple[list[tuple[str, str]], list[tuple[int, str, str]]]:
    """Returns a problem solved step by step; the steps after a wrong one go on from it."""
    per, boxes = random.randint(3, 12), random.randint(3, 9)
    total = per * boxes
    rounds = [(f"There are {boxes} boxes with {per} apples each. How many are there?", f"{boxes} x {per} = {total}.")]
    wrong, places = (random.randint(2, _NUM_ROUNDS) if is_wrong else 0), []
    for number in range(2, _NUM_ROUNDS + 1):
        added = random.randint(2, 30)
        right = total + added
        stated = right + random.choice([-10, -1, 1, 10]) if number == wrong else right
        rounds.append((f"Now {added} more are put in. How many are there?", f"{total} + {added} = {stated} apples."))
        if number == wrong:
            places.append((number, "Reasoning Error", f"{total} + {added} = {right}"))
        total = stated
    return rounds, places


MNLI = Layout(
    rows=mnli_rows,
    write=write_jsonl,
    train="multinli_1.0_train.jsonl",
    validation="multinli_1.0_dev_matched.jsonl multinli_1.0_dev_mismatched.jsonl",
)


def write_mnli(folder: Path, num_rows: NumRows = 100, seed: int = 0) -> Path:
    """Writes MultiNLI. It has no labelled test set: a test size is taken for its matched and mismatched dev files."""
    wanted = sizes(num_rows)
    return MNLI(folder, {**wanted, "validation": max(wanted.get(name, 0) for name in ("validation", "test"))}, seed)


WRITERS: dict[str, Callable[..., Path]] = {
    "begin": Layout(
        rows=begin_rows,
        write=partial(write_tsv, header=BEGIN_HEADER, end="\r\n"),
        validation="wow/begin_dev_wow.tsv cmu-dog/begin_dev_cmu.tsv topicalchat/begin_dev_tc.tsv",
        test="wow/begin_test_wow.tsv cmu-dog/begin_test_cmu.tsv topicalchat/begin_test_tc.tsv",
    ),
    "audit": write_audit,
    "mnli": write_mnli,
    "snli": Layout(
        rows=snli_rows,
        write=write_jsonl,
        train="snli_1.0_train.jsonl",
        validation="snli_1.0_dev.jsonl",
        test="snli_1.0_test.jsonl",
    ),
    "conjnli": Layout(
        rows=conjnli_rows,
        write=partial(write_tsv, header=("Premise", "Hypothesis", "Label"), bom=True),
        train="adversarial_train_15k.tsv",
        validation="conj_dev.tsv",
        test="conj_test.tsv",
    ),
    "dnli": Layout(
        rows=dnli_rows,
        write=write_json_line,
        train="dialogue_nli_train.jsonl",
        validation="dialogue_nli_dev.jsonl",
        test="dialogue_nli_test.jsonl",
    ),
    "decode": Layout(
        rows=decode_rows, write=write_jsonl, train="train.jsonl", validation="dev.jsonl", test="test.jsonl"
    ),
    "halludial": write_halludial,
    "halueval": write_halueval,
    "diahalu": write_diahalu,
}
