"""Compares `benchmark.official` with the q-squared scripts, run unchanged in the environment that they ask for.

Both sides have the same models: `flan-t5-small` asks, a trained `minilm` answers (speed.q2_audit trains one), `minilm`
is BERTScore's encoder, and the same spaCy pipeline and critic parse and judge. peers/README.md says how the scripts'
environment is made.

Without models, pairs of the embedded corpus and some hard ones go through models by rule, which take every branch of
the protocol; `--write` keeps what the scripts said of them, for tests/faithkit/metrics/responses/test_official.py.

python -m speed.official_metrics --scripts DIR --nli runs/snli --reader runs/reader --data DIR
python -m speed.official_metrics --scripts DIR --write tests/faithkit/metrics/responses/official_figures.json
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data_modules.datasets.audit import Audit
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.inference.foreign_model_beams import beam_writer
from faithkit.metrics.responses.bert_score import BertScore, RescaledBertScore
from faithkit.metrics.responses.bleu import bleu, bleu_counts
from faithkit.metrics.responses.ngrams import knowledge_f1
from faithkit.metrics.responses.official import (
    PERSONAL_BY_DEPENDENCY,
    OfficialCandidates,
    OfficialMetrics,
    official_q2,
    official_rules,
)
from faithkit.metrics.responses.q2 import Q2
from faithkit.metrics.responses.q2_models import ExtractiveAnswers, Seq2SeqQuestions, SpacyCandidates
from faithkit.weights.resolve import resolve
from faithkit_workflows.detectors.entailment import load_entailment
from speed.measure import table
from speed.metric_speed import read_pairs
from speed.peer import environment
from speed.q2_audit import TEMPLATE
from speed.stand_ins import NO_ANSWER, StandIns

PEER = Path(__file__).parent / "peers" / "q_squared.py"
VARIABLE = "FAITHKIT_QSQUARED_PYTHON"
LABELS = ("entailment", "neutral", "contradiction")
Pairs = list[tuple[str, str]]  # response, knowledge
HARD: Pairs = [
    ("The U.S. joined in 1945.", "The United Nations has had the US as a member since 1945."),
    ("I love it!", "Chess is a board game for two players."),
    ("Yes.", "Yes is a band."),
    ("Paris, Paris and Paris again: Paris is in France.", "Paris is the capital of France."),
    ("You and I know that my 32-bit machine is old.", "A 32-bit machine reads words of 32 bits."),
    ("zzz qqq xxx www vvv", "The Nile is the longest river in Africa."),
    ("It's our river; in our country it isn't 6,650 km long.", "The Nile is 6,650 km long."),
    ("NA is the symbol of sodium, isn't it?", "Na is the symbol of sodium, from the Latin natrium."),
    ("He said: \"The dog's name is Max.\"", "Max is a dog's name."),
    ("me and you like them", "Dogs are liked by many people."),
]  # fmt: skip


def main() -> None:
    """Runs both sides and prints the largest differences."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scripts", type=Path, required=True, help="a checkout of orhonovich/q-squared")
    parser.add_argument("--nli", help="a critic's run or an NLI model")
    parser.add_argument("--reader", help="as trained by speed.q2_audit; without it all models are by rule")
    parser.add_argument("--data", type=Path, help="the folder with faithdial_audit, for its pairs")
    parser.add_argument("--pairs", type=int, default=50)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    if not (python := os.environ.get(VARIABLE)):
        sys.exit(f"{VARIABLE} is not set: {PEER.parent.name}/README.md says how to make the scripts' environment")
    spacy, models = SpacyCandidates.load("spacy-sm"), StandIns()
    parts: Any = spacy, models, models, models
    if options.reader:
        asker = Seq2SeqQuestions.load("flan-t5-small", template=TEMPLATE, writer=beam_writer)
        parts = spacy, asker, ExtractiveAnswers.load(options.reader), load_entailment(options.nli)
    scorer = BertScore.load("minilm")
    pairs = choose_pairs(options.data, options.pairs)
    with tempfile.TemporaryDirectory() as folder:
        command = [python, str(PEER), str(options.scripts), folder, *([TEMPLATE] if options.reader else [])]
        write_pairs(Path(folder) / "pairs.csv", pairs)
        write_model(Path(folder) / "encoder", scorer.model, "minilm")
        if options.reader:
            write_model(Path(folder) / "questions", parts[1].model, "flan-t5-small")
            write_model(Path(folder) / "answers", parts[2].model, "minilm")
        theirs = answer_peer(command, parts)
    responses, knowledge = map(list, zip(*pairs, strict=True))
    assert [(one["response"], one["knowledge"]) for one in theirs["pairs"]] == pairs
    if options.reader:
        q2 = official_q2(*parts)
    else:
        rules = official_rules(spacy.pipeline, NO_ANSWER)
        q2 = Q2(OfficialCandidates(spacy.pipeline), models, models, models, rules)
    official = OfficialMetrics(bert_score=RescaledBertScore.of(scorer, theirs["baseline"]), q2=q2)
    columns, asked = official.score(responses, knowledge)
    assert asked is not None
    ours = Q2(*parts).score(responses, knowledge)
    beside = {
        "official_f1": 100 * knowledge_f1(responses, knowledge),
        "official_bleu": bleu(bleu_counts(responses, knowledge), effective_order=True),
        "official_bertscore": 100 * scorer.score(responses, knowledge)["bertscore_f1"],
        "official_q2_f1": 100 * ours.f1,
        "official_q2_nli": 100 * ours.nli,
    }
    rows = []
    for name, values in columns.items():
        wanted = np.array([one[name] for one in theirs["pairs"]])
        scale = 1 if name == "official_bleu" else 100
        apart = np.abs(values - wanted)
        cells = [f"{x:.2f}" for x in (beside[name].mean(), scale * values.mean(), scale * wanted.mean())]
        rows.append([name, *cells, f"{apart.max():.1e}", int((apart > 1e-6).sum())])
    valid = [sum(map(len, one.asked)) for one in (ours, asked)]
    print(f"{len(pairs)} pairs; valid questions of Q2: ours {valid[0]}, official {valid[1]}")
    print(table(["metric", "ours", "official", "the scripts", "largest difference", "pairs that differ"], rows))
    tell_differences(official, theirs)
    if options.write:
        options.write.write_text(json.dumps(theirs, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


def choose_pairs(data: Path | None, count: int) -> Pairs:
    """Takes audited responses evenly, or pairs of the embedded corpus behind the hard ones."""
    if data is None:
        embedded = read_pairs(count - len(HARD))
        return [*HARD, *zip(embedded.responses, embedded.knowledge, strict=True)]
    audit = Audit(path=str(data / "faithdial_audit"), corpora="wow")
    examples = list(read_examples(audit, None, ReadReport()))
    return [(e.response, e.knowledge) for e in examples[:: len(examples) // count][:count]]


def write_pairs(path: Path, pairs: Pairs) -> None:
    """Writes the pairs as the scripts read them."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("response", "knowledge"), *pairs])


def write_model(folder: Path, model: Any, weights: str) -> None:
    """Writes a model and the tokenizer of its weights as torch 1.6 and transformers 3.2 read them."""
    import torch

    folder.mkdir()
    model.config.to_json_file(folder / "config.json", use_diff=False)
    state = {key: value.float().cpu().clone() for key, value in model.state_dict().items()}
    torch.save(state, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    for name in ("tokenizer.json", "vocab.txt"):
        if (source := Path(resolve(weights)) / name).exists():
            (folder / name).write_bytes(source.read_bytes())


def answer_peer(command: Sequence[str], parts: Any) -> dict[str, Any]:
    """Starts the scripts, answers what they ask of pipeline and NLI model, and returns all of what was said."""
    candidates, asker, reader, entailment = parts
    parses: dict[str, Any] = {}
    labels: list[list[str]] = []
    reply: Any
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()) as peer:
        assert peer.stdin is not None and peer.stdout is not None
        for line in peer.stdout:
            kind, *words = json.loads(line)
            if kind == "done":
                print("null", file=peer.stdin, flush=True)
                return {**words[0], "parses": parses, "labels": labels}
            if kind == "parse":
                reply = parses[words[0]] = parse(candidates.pipeline(words[0]))
            elif kind == "questions":
                [reply] = asker.questions([words[0]], [words[1]])
            elif kind == "answers":
                [reply] = reader.answers([words[0]], [words[1]])
                reply = NO_ANSWER if reply is None else reply
            else:
                reply = LABELS[int(entailment.entailment([words[0]], [words[1]]).argmax())]
                labels.append([*words, reply])
            print(json.dumps(reply), file=peer.stdin, flush=True)
    sys.exit("the scripts ended before they were done")


def parse(document: Any) -> dict[str, Any]:
    """Gives what the scripts read of a parsed text."""
    return {
        "entities": [span.text for span in document.ents],
        "chunks": [span.text for span in document.noun_chunks],
        "tokens": [[token.text, token.dep_] for token in document if token.dep_ in PERSONAL_BY_DEPENDENCY],
    }


def tell_differences(official: OfficialMetrics, theirs: dict[str, Any]) -> None:
    """Prints how many questions and answers of the scripts are ours too, and the first that are not."""
    assert official.q2 is not None
    for name, known, calls in (
        ("questions", official.q2.questions, theirs["questions"]),
        ("answers", official.q2.answers, theirs["answers"]),
    ):
        found = known([(first, second) for first, second, _ in calls])
        wanted = [
            tuple(value) if isinstance(value, list) else None if value == NO_ANSWER else value for *_, value in calls
        ]
        other = [(call[:2], a, b) for call, a, b in zip(calls, found, wanted, strict=True) if a != b]
        print(f"{name}: {len(calls) - len(other)} of {len(calls)} are the scripts'")
        for key, a, b in other[:5]:
            print(f"  {key}\n    ours    {a}\n    theirs  {b}")


if __name__ == "__main__":
    main()
