"""The other side of `metric_speed`: libraries, and plain Python where there is none."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from faithkit.words import apostrophe_content_words, apostrophe_words, words_and_marks

Columns = dict[str, Any]
_SMALL = {
    "num_layers": 2,
    "num_hidden_layers": 2,
    "num_decoder_layers": 2,
    "d_model": 64,
    "hidden_size": 64,
    "d_ff": 128,
    "intermediate_size": 128,
    "num_heads": 2,
    "num_attention_heads": 2,
    "d_kv": 32,
}


def their_bleu(responses: Sequence[str], gold: Sequence[str]) -> Columns:
    """The corpus, and every sentence, with scorers of their own: their tokenizers remember what they have seen."""
    from sacrebleu.metrics import BLEU

    sentence = BLEU(effective_order=True)
    pairs = zip(responses, gold, strict=True)
    return {
        "corpus": [BLEU().corpus_score(list(responses), [list(gold)]).score],
        "sentences": [sentence.sentence_score(said, [wanted]).score for said, wanted in pairs],
    }


def their_rouge(responses: Sequence[str], gold: Sequence[str]) -> Columns:
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"])
    scores = [scorer.score(wanted, said) for said, wanted in zip(responses, gold, strict=True)]
    names = {"rouge_1": "rouge1", "rouge_2": "rouge2", "rouge_l": "rougeL"}
    return {ours: [score[theirs].fmeasure for score in scores] for ours, theirs in names.items()}


def their_bert_score(weights: str, *, num_layers: int) -> Callable[..., Columns]:
    from bert_score import BERTScorer

    from faithkit.weights.from_pretrained import quietly
    from faithkit.weights.resolve import resolve

    with quietly():
        scorer = BERTScorer(model_type=resolve(weights), num_layers=num_layers, device="cpu")

    def score(responses: Sequence[str], knowledge: Sequence[str], batch_size: int = 64) -> Columns:
        found = scorer.score(list(responses), list(knowledge), batch_size=batch_size)
        return {f"bertscore_{n}": v.numpy() for n, v in zip(("precision", "recall", "f1"), found, strict=True)}

    return score


def their_knowledge_f1(responses: Sequence[str], knowledge: Sequence[str]) -> Columns:
    values = []
    for said, known in zip(responses, knowledge, strict=True):
        first, second = Counter(apostrophe_content_words(said)), Counter(apostrophe_content_words(known))
        both = sum((first & second).values())
        values.append(2 * both / (first.total() + second.total()) if both else 0.0)
    return {"f1": values}


def their_fragments(responses: Sequence[str], knowledge: Sequence[str]) -> Columns:
    """Greedy matching as Grusky et al. (2018) write it down: every place of the knowledge for every place."""
    density, coverage = [], []
    for said, known in zip(map(words_and_marks, responses), map(words_and_marks, knowledge), strict=True):
        runs, i = [], 0
        while i < len(said):
            longest = 0
            for j in range(len(known)):
                n = 0
                while i + n < len(said) and j + n < len(known) and said[i + n] == known[j + n]:
                    n += 1
                longest = max(longest, n)
            runs.append(longest)
            i += max(1, longest)
        density.append(sum(n * n for n in runs) / max(1, len(said)))
        coverage.append(sum(runs) / max(1, len(said)))
    return {"density": density, "coverage": coverage}


def their_distinct(responses: Sequence[str]) -> Columns:
    values = {}
    for order in (1, 2):
        texts = map(apostrophe_words, responses)
        grams = [tuple(said[i : i + order]) for said in texts for i in range(len(said) - order + 1)]
        values[f"distinct_{order}"] = [len(set(grams)) / len(grams)]
    return values


class OneByOne:
    """Q2's models asked a single thing at a time, in the order in which the protocol comes to it.

    Questions are searched for by transformers' `generate`.
    """

    def __init__(self, candidates: Any, questions: Any, answers: Any, entailment: Any):
        plain = type(questions)(questions.model, questions.tokenizer, template=questions.template)
        self.models = candidates, plain, answers, entailment

    def candidates(self, texts: Sequence[str]) -> list[Any]:
        return [self.models[0].candidates([text])[0] for text in texts]

    def questions(self, answers: Sequence[str], contexts: Sequence[str]) -> list[Any]:
        return [self.models[1].questions([a], [c])[0] for a, c in zip(answers, contexts, strict=True)]

    def answers(self, questions: Sequence[str], contexts: Sequence[str]) -> list[Any]:
        return [self.models[2].answers([q], [c])[0] for q, c in zip(questions, contexts, strict=True)]

    def entailment(self, premises: Sequence[str], hypotheses: Sequence[str]) -> Any:
        pairs = zip(premises, hypotheses, strict=True)
        return np.concatenate([self.models[3].entailment([p], [h]) for p, h in pairs])


def q2_models(*, small: bool, precision: str = "32-true") -> tuple[Any, Any, Any, Any]:
    """Q2's models with real tokenizers: random ones of two layers of 64, or real ones, encoders with random heads."""
    import torch
    from transformers import (
        AutoConfig,
        AutoModelForQuestionAnswering,
        AutoModelForSeq2SeqLM,
        AutoModelForSequenceClassification,
        AutoTokenizer,
    )

    from data_modules.encoding.pairs import PairEncoder
    from faithkit.evaluation.responses.q2.answers import ExtractiveAnswers
    from faithkit.evaluation.responses.q2.candidates import SpacyCandidates
    from faithkit.evaluation.responses.q2.questions import Seq2SeqQuestions
    from faithkit.hardware import to_bf16
    from faithkit.inference.foreign_model_beams import beam_writer
    from faithkit.weights.from_pretrained import quietly
    from faithkit.weights.resolve import resolve
    from workflows.entailment import NliModel

    torch.manual_seed(0)

    def made(auto: Any, name: str, **options: Any) -> Any:
        folder = resolve(name)
        with quietly():
            if small:
                model = auto.from_config(AutoConfig.from_pretrained(folder, **_SMALL, **options))
            else:
                model = auto.from_pretrained(folder, **options)
        return (to_bf16(model) if precision == "bf16" else model.float()).eval()

    tokenizer = AutoTokenizer.from_pretrained(resolve("minilm"))
    writer = made(AutoModelForSeq2SeqLM, "flan-t5-small")
    write, template = beam_writer(writer), "answer: {answer}  context: {context}"
    encoder = PairEncoder(tokenizer=tokenizer, max_length=256)
    return (
        SpacyCandidates.load("spacy-sm"),
        Seq2SeqQuestions(
            writer, AutoTokenizer.from_pretrained(resolve("flan-t5-small")), template=template, write=write
        ),
        ExtractiveAnswers(made(AutoModelForQuestionAnswering, "minilm"), tokenizer),
        NliModel(
            made(AutoModelForSequenceClassification, "minilm", num_labels=3), encoder, [0, 1, 2], batch_tokens=1024
        ),
    )
