"""Compares Q2, ours and the official protocol, with people's labels on FaithDial's data audit.

No question answering model comes with the local weights, so one is trained here first: `minilm` on HaluEval's questions
(481 with an answer in their knowledge, half as many with another row's knowledge as unanswerable). Questions are
written by `flan-t5-small`; the NLI model is a critic that is given. All are far smaller than the papers', so the table
tells how the protocols compare, not how good Q2 can be.

python train.py data=snli data.path=DIR/snli data.split=validation run_dir=runs/snli
python -m speed.q2_audit --data DIR --nli runs/snli --reader runs/reader
"""

import argparse
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data_modules.datasets.audit import Audit
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.baselines.word_overlap import unsupported_share
from faithkit.inference.foreign_model_beams import beam_writer
from faithkit.metrics.ranking import Ranking
from faithkit.metrics.responses.bert_score import BertScore
from faithkit.metrics.responses.ngrams import knowledge_f1
from faithkit.metrics.responses.official import official_q2, sentence_bleu, token_f1
from faithkit.metrics.responses.q2 import Q2
from faithkit.metrics.responses.q2_models import ExtractiveAnswers, Seq2SeqQuestions, SpacyCandidates
from faithkit.records import HALLUCINATED, Example
from faithkit.statistics.bootstrap import Groups, bootstrap, paired_difference
from faithkit.statistics.spread import Values
from faithkit.weights.resolve import resolve
from faithkit_workflows.detectors.entailment import load_entailment
from speed.measure import table

# Raw flan-t5-small writes questions when it is asked to in words.
TEMPLATE = "Ask a question. {context}  answer: {answer}"
BASELINE = "words that the knowledge lacks"


def main() -> None:
    """Trains the reader where there is none, scores, and prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder with faithdial_audit and halueval")
    parser.add_argument("--nli", required=True, help="a critic's run or an NLI model")
    parser.add_argument("--reader", type=Path, required=True, help="where the reader is or will be")
    parser.add_argument("--every", type=int, default=4, help="takes every so many of WoW's audited responses")
    parser.add_argument("--train-only", action="store_true")
    options = parser.parse_args()
    if not options.reader.exists():
        train_reader(options.data / "halueval" / "qa_data.json", options.reader)
    if options.train_only:
        return
    audit = Audit(path=str(options.data / "faithdial_audit"), corpora="wow")
    examples = list(read_examples(audit, None, ReadReport()))[:: options.every]
    scores = score(examples, options.nli, str(options.reader))
    print(compare(examples, scores))


def score(examples: Sequence[Example], nli: str, reader: str) -> dict[str, Values]:
    """Scores each response by every metric, the higher the likelier hallucinated [N]."""
    responses, knowledge = [e.response for e in examples], [e.knowledge for e in examples]
    asker = Seq2SeqQuestions.load("flan-t5-small", template=TEMPLATE, precision="auto", writer=beam_writer)
    parts = SpacyCandidates.load("spacy-sm"), asker, ExtractiveAnswers.load(reader), load_entailment(nli)
    scores = {
        BASELINE: np.array([unsupported_share(e.knowledge, e.response) for e in examples]),
        "knowledge F1": 1 - knowledge_f1(responses, knowledge),
        "official F1": 1 - token_f1(responses, [text.lower() for text in knowledge]),
        "official BLEU": 100 - sentence_bleu(responses, [text.lower() for text in knowledge]),
        "BERTScore": 1 - BertScore.load("minilm").score(responses, knowledge)["bertscore_f1"],
        "the NLI model alone": 1 - parts[3].entailment(knowledge, responses)[:, 0],
    }
    for name, q2 in (("Q2", Q2(*parts)), ("official Q2", official_q2(*parts))):
        begun = time.process_time()
        found = q2.score(responses, knowledge)
        scores |= {f"{name}, F1": 1 - found.f1, f"{name}, NLI": 1 - found.nli}
        print(
            f"{name}: {sum(map(len, found.asked))} valid questions on {sum(found.num_candidates)} candidates, "
            f"{sum(not one for one in found.asked)} of {len(examples)} responses without, "
            f"means {found.f1.mean():.3f} and {found.nli.mean():.3f}, {time.process_time() - begun:.0f} CPU-s"
        )
    return scores


def compare(examples: Sequence[Example], scores: dict[str, Values]) -> str:
    """Makes a table of AUROC with its interval over knowledge, and the paired difference from the baseline."""
    gold = np.array([e.label == HALLUCINATED for e in examples], np.float64)
    groups = Groups.of(e.group for e in examples)
    first = Ranking(scores[BASELINE], gold, groups)
    rows = []
    for name, values in scores.items():
        ranking = Ranking(values, gold, groups)
        found = bootstrap(groups, ranking, n=len(gold)).metrics["auroc"]
        cells = [name, f"{100 * found.value:.1f} [{100 * (found.low or 0):.1f}, {100 * (found.high or 0):.1f}]", ""]
        if name != BASELINE:
            step = paired_difference(groups, ranking, first)["auroc"]
            cells[2] = f"{100 * step.value:+.1f} [{100 * step.low:.1f}, {100 * step.high:.1f}]"
        rows.append(cells)
    print(f"{len(gold)} responses, {gold.mean():.1%} hallucinated, {groups.count} knowledge texts")
    return table(["score", "AUROC", "difference"], rows)


def train_reader(path: Path, folder: Path, *, num_steps: int = 120, batch_size: int = 16, lr: float = 3e-4) -> None:
    """Trains `minilm` to mark answers, and saves it."""
    import torch
    from transformers import AutoModelForQuestionAnswering, AutoTokenizer

    torch.manual_seed(0)
    rng = random.Random(0)
    tokenizer = AutoTokenizer.from_pretrained(resolve("minilm"))
    model = AutoModelForQuestionAnswering.from_pretrained(resolve("minilm")).train()
    rows = list(reader_rows(path, rng))
    model.bert.embeddings.requires_grad_(False)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, step / 20) * (1 - step / num_steps))
    for step in range(num_steps):
        batch = rng.sample(rows, batch_size)
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(**encode(tokenizer, batch)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 20 == 0:
            print(f"reader: step {step} of {num_steps}, loss {loss.item():.2f}", flush=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def reader_rows(path: Path, rng: random.Random) -> list[tuple[str, str, int, int]]:
    """Reads (question, knowledge, first character, character behind the answer); -1 twice where it has no answer."""
    found = []
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        begin = row["knowledge"].lower().find(row["right_answer"].lower())
        if begin >= 0:
            found.append((row["question"], row["knowledge"], begin, begin + len(row["right_answer"])))
    others = [(row["question"], rng.choice(rows)["knowledge"], -1, -1) for row in rng.sample(rows, len(found) // 2)]
    return found + others


def encode(tokenizer: Any, batch: Sequence[tuple[str, str, int, int]]) -> dict[str, Any]:
    """Encodes rows with the tokens where their answers begin and end; the first token where there is none."""
    import torch

    questions, texts, begins, ends = zip(*batch, strict=True)
    inputs = tokenizer(
        list(questions), list(texts), truncation="only_second", max_length=160, padding=True, return_tensors="pt"
    )
    places = []
    for i, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        first = inputs.char_to_token(i, begin, 1) if begin >= 0 else 0
        last = inputs.char_to_token(i, end - 1, 1) if begin >= 0 else 0
        places.append((first or 0, last or 0) if first and last else (0, 0))
    starts, stops = zip(*places, strict=True)
    return {**inputs, "start_positions": torch.tensor(starts), "end_positions": torch.tensor(stops)}


if __name__ == "__main__":
    main()
