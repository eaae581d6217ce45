"""Compares our metrics of responses with the usual libraries, and Q2 with calling its models one item at a time.

The embedded corpus in FaithDial's layout: responses, their knowledge, and as gold response the one that people edited.
Libraries are called as their documentation shows. Q2 runs twice: with small random models, and with a real T5 as
question generator and `minilm` with random heads as answerer and NLI model. Their output is nonsense, but it
costs as much, and both sides have the same.

Needs: bert-score and rouge-score (the `bench` extra); `minilm`, `flan-t5-small` and `spacy-sm` (fetched once).

python -m speed.metric_speed
"""

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from faithkit.hardware import computes_in_bf16
from faithkit.metrics.responses.q2 import Q2
from faithkit.statistics.bootstrap import Groups
from speed.measure import Ratio, alternate, report, require, table
from speed.metric_peers import (
    OneByOne,
    q2_models,
    their_bert_score,
    their_bleu,
    their_distinct,
    their_fragments,
    their_knowledge_f1,
    their_rouge,
)

Columns = dict[str, Any]  # values by name, numbers or one for each pair


REFERENCE, OURS = "reference", "ours"


@dataclass(frozen=True)
class Pairs:
    """Responses with their knowledge and their gold responses."""

    responses: list[str]
    knowledge: list[str]
    gold: list[str]

    def first(self, count: int) -> "Pairs":
        return Pairs(self.responses[:count], self.knowledge[:count], self.gold[:count])


Side = Callable[[Pairs], Columns]


def main() -> None:
    """Times each metric's two sides in turns and compares their values."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5000)
    parser.add_argument("--bert-pairs", type=int, default=5000, help="of BERTScore")
    parser.add_argument("--q2-pairs", type=int, default=200, help="of Q2 with small models")
    parser.add_argument("--real-q2-pairs", type=int, default=40, help="of Q2 with real ones")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model-rounds", type=int, default=1, help="of BERTScore and Q2")
    options = parser.parse_args()
    require("bert_score", "rouge_score")

    import torch

    torch.set_num_threads(1)
    pairs = read_pairs(max(options.pairs, options.bert_pairs))
    rows = [
        compare(name, reference, theirs, ours, pairs.first(options.pairs), options.rounds)
        for (name, reference), (theirs, ours) in text_metrics().items()
    ]
    rows.append(compare_bert_score(pairs.first(options.bert_pairs), options.model_rounds))
    rows.append(compare_q2(pairs.first(options.q2_pairs), options.model_rounds, small=True))
    for precision in dict.fromkeys(("32-true", "bf16" if computes_in_bf16("cpu") else "32-true")):
        given = pairs.first(options.real_q2_pairs)
        rows.append(compare_q2(given, options.model_rounds, small=False, precision=precision))
    header = ["metric", "reference", "pairs", "reference, CPU-s", "ours, CPU-s", "faster", "largest difference"]
    lengths = [len(text.split()) for text in pairs.responses]
    body = (
        f"The embedded corpus in FaithDial's layout, {np.mean(lengths):.0f} words a response. Both sides give the "
        "value of every pair, and of the corpus where the metric has one. bert-score is timed as it is called by "
        "default; its values are compared one pair to a match, because its padding counts as a similarity of 0. Q2 "
        "with small models: two layers of 64, random; with real ones: a T5 of 77M (beam 5) and two encoders of 22M. "
        "There one thread's arithmetic is the limit: a single item of five beams already reaches half of what a batch "
        "does. In bf16, as precision=auto has it on this CPU, some questions are others; one at a time stays in "
        "fp32.\n\n"
    )
    report("Metrics of responses", body + table(header, rows))


def read_pairs(count: int) -> Pairs:
    """Reads pairs: Wizard of Wikipedia's own responses as the system's, the edited ones as gold."""
    from data_modules.datasets.faithdial import FaithDial
    from data_modules.embedded.layouts import WRITERS
    from data_modules.reading.dataset import read_examples
    from data_modules.reading.rows import ReadReport

    with tempfile.TemporaryDirectory() as folder:
        WRITERS["faithdial"](Path(folder), {"train": count})
        examples = list(read_examples(FaithDial(path=folder), "train", ReadReport()))
    said = [example.original or example.response for example in examples]
    return Pairs(said, [example.knowledge for example in examples], [example.response for example in examples])


def text_metrics() -> dict[tuple[str, str], tuple[Side, Side]]:
    """Returns both sides of each metric of words."""
    from faithkit.metrics.responses.bleu import bleu, bleu_counts
    from faithkit.metrics.responses.ngrams import distinct_n, extractive_fragments, knowledge_f1, rouge

    def our_bleu(pairs: Pairs) -> Columns:
        counts = bleu_counts(pairs.responses, pairs.gold)
        return {"corpus": bleu(counts.sum(axis=0, keepdims=True)), "sentences": bleu(counts, effective_order=True)}

    def our_distinct(pairs: Pairs) -> Columns:
        groups = Groups.of(map(str, range(len(pairs.responses))))
        return dict(distinct_n(groups, pairs.responses)(np.ones((1, groups.count))))

    return {
        ("BLEU", "sacrebleu"): (lambda p: their_bleu(p.responses, p.gold), our_bleu),
        ("ROUGE-1/2/L", "rouge-score"): (
            lambda p: their_rouge(p.responses, p.gold),
            lambda p: dict(rouge(p.responses, p.gold)),
        ),
        ("knowledge F1", "plain Python"): (
            lambda p: their_knowledge_f1(p.responses, p.knowledge),
            lambda p: {"f1": knowledge_f1(p.responses, p.knowledge)},
        ),
        ("density and coverage", "plain Python"): (
            lambda p: their_fragments(p.responses, p.knowledge),
            lambda p: dict(extractive_fragments(p.responses, p.knowledge)),
        ),
        ("distinct-1/2", "plain Python"): (lambda p: their_distinct(p.responses), our_distinct),
    }


def compare_bert_score(pairs: Pairs, rounds: int) -> list[str]:
    """Compares the package and ours, each with its model loaded."""
    from faithkit.metrics.responses.bert_score import BertScore

    theirs, ours = their_bert_score("minilm", num_layers=6), BertScore.load("minilm", num_layers=6, device="cpu")
    few = pairs.first(200)
    expected = theirs(few.responses, few.knowledge, batch_size=1)
    worst = difference(expected, dict(ours.score(few.responses, few.knowledge)))
    taken = alternate(
        {
            REFERENCE: lambda: theirs(pairs.responses, pairs.knowledge),
            OURS: lambda: ours.score(pairs.responses, pairs.knowledge),
        },
        rounds,
    )
    return line("BERTScore, minilm", "bert-score", pairs, taken, worst)


def compare_q2(pairs: Pairs, rounds: int, *, small: bool, precision: str = "32-true") -> list[str]:
    """Compares batches over all responses with a response and a question at a time (in fp32)."""
    models, one = q2_models(small=small, precision=precision), OneByOne(*q2_models(small=small))

    def batched(given: Pairs) -> Columns:
        found = Q2(*models).score(given.responses, given.knowledge)
        return {"f1": found.f1, "nli": found.nli}

    def singly(given: Pairs) -> Columns:
        found = [Q2(one, one, one, one).score([r], [k]) for r, k in zip(given.responses, given.knowledge, strict=True)]
        return {"f1": np.array([s.f1[0] for s in found]), "nli": np.array([s.nli[0] for s in found])}

    name = f"Q2, {'small' if small else 'real'} models{'' if precision == '32-true' else f', {precision}'}"
    return compare(name, "one at a time", singly, batched, pairs, rounds)


def compare(name: str, reference: str, theirs: Side, ours: Side, pairs: Pairs, rounds: int) -> list[str]:
    """Times both sides, compares their values, and makes a line of the table."""
    kept: dict[str, Columns] = {}

    def run(side: str, work: Side) -> Callable[[], None]:
        return lambda: kept.update({side: work(pairs)})

    taken = alternate({REFERENCE: run(REFERENCE, theirs), OURS: run(OURS, ours)}, rounds)
    return line(name, reference, pairs, taken, difference(kept[REFERENCE], kept[OURS]))


def difference(theirs: Columns, ours: Columns) -> float:
    """Finds the largest difference of any value."""
    return max(float(np.abs(np.asarray(theirs[name]) - np.asarray(ours[name])).max()) for name in ours)


def line(name: str, reference: str, pairs: Pairs, taken: dict[str, list[float]], worst: float) -> list[str]:
    median = [f"{np.median(taken[side]):.2f}" for side in (REFERENCE, OURS)]
    ratio = Ratio.of(taken[REFERENCE], taken[OURS])
    return [name, reference, f"{len(pairs.responses):,}", *median, str(ratio), f"{worst:.1e}"]


if __name__ == "__main__":
    main()
