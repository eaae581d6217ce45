"""F1, BLEU and BERTScore as the q-squared scripts compute them, for FaithDial's Table 5.

FaithDial's README says that its BLEU, ROUGE, F1, BERTScore and Q2 came from github.com/orhonovich/q-squared. Those
scripts compare the response with its knowledge in lower case, never with the gold response, and have no ROUGE:

- `official_f1`: multiset F1 of spaCy's tokens in lower case, without its stop words and punctuation.
- `official_bleu`: sacrebleu's BLEU of each response by itself, 0 below four tokens.
- `official_bertscore`: F1 of roberta-large's layer 17, rescaled by a baseline b: (F1 - b) / (1 - b).

Use them to compare with published figures, and our metrics for anything else.

Q2 as its authors' scripts compute it (github.com/orhonovich/q-squared, options beam, single, remove, and run_nli).

Where it differs from ours, it is for published figures, not for better ones:

- Candidates are all entities, repeated ones too, then the noun chunks that none of them equals; only "I" is dropped.
- Questions: five beams of at most 128 tokens, no three tokens twice, the search ends with the fifth finished beam.
  A question is personal by its parse: "I" or "you" as subject, "my" or "your" as possessive; "me" and "yours" are not.
- Answers: the likeliest start and the likeliest end, wherever they are, as the tokenizer writes them (often in lower
  case). No answer is the first token alone; an end before its start is an empty answer.
- Two answers are equal without punctuation ("U.S.", "US") and without a, an, the, in, our.
- The NLI model is not asked about an answer that holds the first token, or that a CSV reader takes for a missing value.
  Without a valid question it compares knowledge and response in lower case.
"""

import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from faithkit.detector import Entailment
from faithkit.fast import plan_batches
from faithkit.metrics.responses.bert_score import RescaledBertScore
from faithkit.metrics.responses.ngrams import bleu, bleu_counts, count_shared_grams
from faithkit.metrics.responses.q2 import (
    Q2,
    ExtractiveAnswers,
    Q2Rules,
    Q2Scores,
    Seq2SeqQuestions,
    SpacyCandidates,
    TextPair,
    make_statements,
)
from faithkit.statistics.spread import Values


@dataclass(frozen=True, slots=True, kw_only=True)
class OfficialMetrics:
    """The scripts' metrics, as far as their models are given; `notes` say which are not."""

    bert_score: RescaledBertScore | None = None
    q2: Q2 | None = None
    notes: tuple[str, ...] = ()

    def score(self, responses: Sequence[str], knowledge: Sequence[str]) -> tuple[dict[str, Values], Q2Scores | None]:
        """Columns of each pair by name, and what Q2 asked."""
        lowered = [text.lower() for text in knowledge]
        # Of each side the tokens in lower case, without spaCy's stop words and punctuation.
        found, known = (
            [[token.text.lower() for token in tokens if not (token.is_stop or token.is_punct)] for tokens in side]
            for side in (map(_tokenizer(), responses), map(_tokenizer(), lowered))
        )
        [shared] = count_shared_grams(found, known)
        in_sentences = bleu(bleu_counts(responses, lowered), smooth_no_match=True)  # as sacrebleu 1.4 did
        columns = {"official_f1": shared.f1, "official_bleu": in_sentences}
        if self.bert_score is not None:
            columns["official_bertscore"] = self.bert_score.score(responses, lowered)
        if self.q2 is None:
            return columns, None
        asked = self.q2.score(responses, knowledge)
        return columns | {"official_q2_f1": asked.f1, "official_q2_nli": asked.nli}, asked


@cache
def _tokenizer() -> Any:
    """Makes spaCy's English tokenizer as of 2.3, which the scripts ask for: "32-bit" is one token there."""
    import spacy
    from spacy.lang.char_classes import HYPHENS

    pipeline = spacy.blank("en")
    infixes = [str(one).replace(f"0-9])(?:{HYPHENS})", f"])(?:{HYPHENS})") for one in pipeline.Defaults.infixes or ()]
    tokenizer: Any = pipeline.tokenizer
    tokenizer.infix_finditer = spacy.util.compile_infix_regex(infixes).finditer
    return tokenizer


# The scripts keep answers in a CSV file between their two steps; pandas 1.1 reads these as missing.
MISSING = frozenset(
    "#N/A|#N/A N/A|#NA|-1.#IND|-1.#QNAN|-NaN|-nan|1.#IND|1.#QNAN|<NA>|N/A|NA|NULL|NaN|n/a|nan|null".split("|")
) | {""}


def official_q2(
    candidates: SpacyCandidates, questions: Seq2SeqQuestions, answers: ExtractiveAnswers, entailment: Entailment
) -> Q2:
    """Makes a Q2 of the scripts' protocol out of the models of ours."""
    rules = official_rules(candidates.pipeline, answers.tokenizer.cls_token)
    models = partial(official_candidates, candidates.pipeline), partial(official_questions, questions)
    return Q2(*models, partial(official_answers, answers), entailment, rules)


def official_rules(pipeline: Any, no_answer: str) -> Q2Rules:
    """Makes the scripts' rules.

    Args:
        pipeline: spaCy's, with a parser.
        no_answer: The reader's first token.
    """

    personal = {"nsubj": {"i", "you"}, "poss": {"my", "your"}}  # by dependency: about who asks or is asked

    def usable(texts: Sequence[str]) -> list[bool]:
        return [
            not any(token.text.lower() in personal.get(token.dep_, ()) for token in question)
            for question in pipeline.pipe(texts)
        ]

    def compared(question: str, answer: str, candidate: str) -> TextPair | None:
        if no_answer in answer or answer in MISSING:
            return None
        return make_statements(*("nan" if text in MISSING else text for text in (question, answer, candidate)))

    return Q2Rules(usable=usable, clean=clean_official_answer, comparison=compared, fallback=str.lower)


def clean_official_answer(text: str) -> str:
    """Leaves of an answer its words in lower case, without punctuation, articles, "in" and "our"."""
    words = text.lower().translate(str.maketrans("", "", string.punctuation))
    return re.sub(" +", " ", re.sub(r"\b(?:an?|the|in|our)\b", " ", words)).strip()


def official_candidates(pipeline: Any, texts: Sequence[str]) -> list[tuple[str, ...]]:
    """Finds all entities, then the noun chunks that none before equals, case aside."""
    found = []
    for document in pipeline.pipe(texts):
        spans = [entity.text for entity in document.ents]
        for chunk in document.noun_chunks:
            if chunk.text.lower() not in {span.lower() for span in spans}:
                spans.append(chunk.text)
        found.append(tuple(span for span in spans if span.lower() != "i"))
    return found


def official_questions(
    asker: Seq2SeqQuestions, answers: Sequence[str], contexts: Sequence[str]
) -> list[tuple[str, ...]]:
    """Asks with the model and template of another asker, by the scripts' search."""
    prompts = asker.prompts(answers, contexts)
    if not prompts:
        return []
    options = {"max_length": 128, "no_repeat_ngram_size": 3, "early_stopping": True}
    questions = []
    for beams in asker.generate(asker.encode(prompts), 5, **options):
        texts = asker.tokenizer.batch_decode(beams, skip_special_tokens=True, clean_up_tokenization_spaces=True)
        questions.append(tuple(text.replace("question: ", "", 1) for text in texts))
    return questions


def official_answers(reader: ExtractiveAnswers, questions: Sequence[str], contexts: Sequence[str]) -> list[str | None]:
    """Reads the likeliest start and the likeliest end, each for itself; None is the first token alone.

    Args:
        reader: Provides model and tokenizer. Texts that are too long are cut, where the scripts fail.
    """
    if not questions:
        return []
    tokenizer = reader.tokenizer
    has_word_pieces = type(tokenizer.backend_tokenizer.model).__name__ == "WordPiece"
    rows = tokenizer(list(questions), list(contexts), truncation=True, max_length=reader.max_length)
    lengths = np.array([len(ids) for ids in rows["input_ids"]], np.int32)
    found: list[str | None] = [None] * len(lengths)
    for batch in plan_batches(lengths, None, reader.batch_tokens, None):
        for i, start, end in zip(batch, *reader.logits(rows, batch), strict=True):
            tokens = tokenizer.convert_ids_to_tokens(rows["input_ids"][i][start.argmax() : end.argmax() + 1])
            if has_word_pieces:  # today's decoder also joins words and punctuation; that of the scripts did not
                text = " ".join(tokens).replace(" ##", "").strip()
            else:
                text = str(tokenizer.convert_tokens_to_string(tokens))
            found[i] = None if text == tokenizer.cls_token else text
    return found
