"""Compares BLEU, ROUGE and BERTScore with sacrebleu, rouge-score and bert-score.

The embedded corpus in FaithDial's layout: Wizard of Wikipedia's responses, their knowledge, and the edited responses as
gold. The libraries are called as their documentation shows.

Needs: bert-score and rouge-score (the `bench` extra), and `minilm` (fetched once).

python -m speed.metric_speed
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sacrebleu.metrics import BLEU

from data_modules.datasets.faithdial import FaithDial
from data_modules.embedded.layouts import WRITERS
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.metrics.responses.bert_score import BertScore
from faithkit.metrics.responses.ngrams import bleu, bleu_counts, rouge
from faithkit.weights.load import quietly
from faithkit.weights.resolve import resolve
from speed.measure import BenchmarkParser, Ratio, alternate, require, table, write_results

Texts = list[str]
Columns = dict[str, Any]  # values by name, one number or one for each response
Side = Callable[[Texts, Texts], Columns]  # scores responses by gold responses or knowledge


def main() -> None:
    """Times the two sides of each metric in turns and compares their values."""
    options = BenchmarkParser(__doc__, pairs=5000, bert_pairs=1000).parse()
    require("bert_score", "rouge_score")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        WRITERS["faithdial"](Path(folder), {"train": max(options.pairs, options.bert_pairs)})
        examples = list(read_examples(FaithDial(path=folder), "train", ReadReport()))
    responses = [example.original or example.response for example in examples]
    gold, knowledge = [example.response for example in examples], [example.knowledge for example in examples]
    pairs, few = (responses[: options.pairs], gold[: options.pairs]), options.bert_pairs
    rows = [
        compare(("BLEU", "sacrebleu"), *load_bleu(), *pairs, options.rounds),
        compare(("ROUGE-1/2/L", "rouge-score"), *load_rouge(), *pairs, options.rounds),
        compare(("BERTScore, minilm", "bert-score"), *load_bert_score(), responses[:few], knowledge[:few], 1),
    ]
    header = ["metric", "reference", "pairs", "reference, CPU-s", "ours, CPU-s", "faster", "largest difference"]
    about = (
        "The embedded corpus in FaithDial's layout; values of every pair, and of the corpus where the metric has one. "
        "bert-score counts padding as a similarity of 0, which explains its difference."
    )
    write_results("Metrics of responses", about, table(header, rows), quick=options.quick)


def compare(
    names: tuple[str, str], theirs: Side, ours: Side, responses: Texts, references: Texts, num_rounds: int
) -> list[str]:
    """Times both sides, compares their values, and makes a row of the table."""
    found: dict[str, Columns] = {}
    sides: dict[str, Callable[[], None]] = {
        "theirs": lambda: found.update(theirs=theirs(responses, references)),
        "ours": lambda: found.update(ours=ours(responses, references)),
    }
    taken = alternate(sides, num_rounds, warm_up=True)
    expected = {name: np.asarray(values) for name, values in found["theirs"].items()}
    difference = max(float(np.abs(np.asarray(values) - expected[name]).max()) for name, values in found["ours"].items())
    median = [f"{np.median(taken[side]):.2f}" for side in ("theirs", "ours")]
    ratio = str(Ratio.of(taken["theirs"], taken["ours"]))
    return [*names, f"{len(responses):,}", *median, ratio, f"{difference:.1e}"]


def load_bleu() -> tuple[Side, Side]:
    """Loads sacrebleu, with separate scorers of corpus and sentences, because their tokenizers cache; and ours."""
    sentence = BLEU(effective_order=True)

    def score(responses: Texts, gold: Texts) -> Columns:
        scores = [sentence.sentence_score(r, [g]).score for r, g in zip(responses, gold, strict=True)]
        return {"corpus": [BLEU().corpus_score(responses, [gold]).score], "sentences": scores}

    def score_ours(responses: Texts, gold: Texts) -> Columns:
        counts = bleu_counts(responses, gold)
        return {"corpus": bleu(counts.sum(axis=0, keepdims=True)), "sentences": bleu(counts, effective_order=True)}

    return score, score_ours


def load_rouge() -> tuple[Side, Side]:
    """Loads rouge-score and ours."""
    from rouge_score.rouge_scorer import RougeScorer

    names = {"rouge_1": "rouge1", "rouge_2": "rouge2", "rouge_l": "rougeL"}
    scorer = RougeScorer(list(names.values()))

    def score(responses: Texts, gold: Texts) -> Columns:
        scores = [scorer.score(g, r) for r, g in zip(responses, gold, strict=True)]
        return {ours: [one[theirs].fmeasure for one in scores] for ours, theirs in names.items()}

    return score, lambda responses, gold: dict(rouge(responses, gold))


def load_bert_score() -> tuple[Side, Side]:
    """Loads bert-score and ours."""
    from bert_score import BERTScorer

    with quietly():
        scorer = BERTScorer(model_type=resolve("minilm"), num_layers=6, device="cpu")
    ours = BertScore.load("minilm", num_layers=6, device="cpu")

    def score(responses: Texts, knowledge: Texts) -> Columns:
        found = scorer.score(responses, knowledge)
        return {f"bertscore_{n}": v.numpy() for n, v in zip(("precision", "recall", "f1"), found, strict=True)}

    return score, lambda responses, knowledge: dict(ours.score(responses, knowledge))


if __name__ == "__main__":
    main()
