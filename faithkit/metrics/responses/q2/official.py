"""Q2 as its authors' scripts compute it (github.com/orhonovich/q-squared, options beam, single, remove, and run_nli).

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
from typing import Any

import numpy as np

from faithkit.entailment import Entailment
from faithkit.metrics.responses.q2.answers import ExtractiveAnswers
from faithkit.metrics.responses.q2.candidates import SpacyCandidates
from faithkit.metrics.responses.q2.questions import Seq2SeqQuestions
from faithkit.metrics.responses.q2.rules import Pair, Rules, comparison
from faithkit.metrics.responses.q2.score import Q2
from faithkit.training.batching import plan_batches

NUM_BEAMS = 5
SEARCH = {"max_length": 128, "no_repeat_ngram_size": 3, "early_stopping": True}
PERSONAL = {"nsubj": {"i", "you"}, "poss": {"my", "your"}}  # by dependency
# The scripts keep answers in a CSV file between their two steps; pandas 1.1 reads these as missing.
MISSING = frozenset(
    "#N/A|#N/A N/A|#NA|-1.#IND|-1.#QNAN|-NaN|-nan|1.#IND|1.#QNAN|<NA>|N/A|NA|NULL|NaN|n/a|nan|null".split("|")
) | {""}
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_SMALL_WORD = re.compile(r"\b(?:an?|the|in|our)\b")
_SPACES = re.compile(" +")


def official_q2(
    candidates: SpacyCandidates, questions: Seq2SeqQuestions, answers: ExtractiveAnswers, entailment: Entailment
) -> Q2:
    """Makes a Q2 of the scripts' protocol out of the models of ours."""
    read, pipeline = OfficialAnswers(answers), candidates.pipeline
    rules = official_rules(pipeline, read.no_answer)
    return Q2(OfficialCandidates(pipeline), OfficialQuestions(questions), read, entailment, rules)


def official_rules(pipeline: Any, no_answer: str) -> Rules:
    """Makes the scripts' rules.

    Args:
        pipeline: spaCy's, with a parser.
        no_answer: The reader's first token.
    """

    def usable(texts: Sequence[str]) -> list[bool]:
        return [not is_personal(question) for question in pipeline.pipe(texts)]

    def compared(question: str, answer: str, candidate: str) -> Pair | None:
        if no_answer in answer or answer in MISSING:
            return None
        return comparison(*("nan" if text in MISSING else text for text in (question, answer, candidate)))

    return Rules(usable=usable, clean=clean, comparison=compared, fallback=str.lower)


def clean(text: str) -> str:
    """Leaves of an answer its words in lower case, without punctuation, articles, "in" and "our"."""
    return _SPACES.sub(" ", _SMALL_WORD.sub(" ", text.lower().translate(_PUNCTUATION))).strip()


def is_personal(question: Any) -> bool:
    """Tells of a parsed question whether it asks about the one who asks or is asked."""
    return any(token.text.lower() in PERSONAL.get(token.dep_, ()) for token in question)


class OfficialCandidates:
    """Finds all entities, then the noun chunks that none before equals, case aside."""

    def __init__(self, pipeline: Any):
        self.pipeline = pipeline

    def candidates(self, texts: Sequence[str]) -> list[tuple[str, ...]]:
        found = []
        for document in self.pipeline.pipe(texts):
            spans = [entity.text for entity in document.ents]
            for chunk in document.noun_chunks:
                if chunk.text.lower() not in {span.lower() for span in spans}:
                    spans.append(chunk.text)
            found.append(tuple(span for span in spans if span.lower() != "i"))
        return found


class OfficialQuestions:
    """Asks with the model and template of another asker, by the scripts' search."""

    def __init__(self, asker: Seq2SeqQuestions):
        self.asker = asker

    def questions(self, answers: Sequence[str], contexts: Sequence[str]) -> list[tuple[str, ...]]:
        prompts = self.asker.prompts(answers, contexts)
        if not prompts:
            return []
        found = self.asker.generate(self.asker.encode(prompts), NUM_BEAMS, **SEARCH)
        return [self._texts(beams) for beams in found]

    def _texts(self, beams: list[list[int]]) -> tuple[str, ...]:
        tokenizer = self.asker.tokenizer
        texts = tokenizer.batch_decode(beams, skip_special_tokens=True, clean_up_tokenization_spaces=True)
        return tuple(text.replace("question: ", "", 1) for text in texts)


class OfficialAnswers:
    """Reads the likeliest start and the likeliest end, each for itself; None is the first token alone.

    Args:
        reader: Whose model and tokenizer are used. A text that they have no room for is cut; the scripts fail there.
    """

    def __init__(self, reader: ExtractiveAnswers):
        self.reader = reader
        self.no_answer: str = reader.tokenizer.cls_token
        self._word_pieces = type(reader.tokenizer.backend_tokenizer.model).__name__ == "WordPiece"

    def answers(self, questions: Sequence[str], contexts: Sequence[str]) -> list[str | None]:
        reader = self.reader
        if not questions:
            return []
        rows = reader.tokenizer(list(questions), list(contexts), truncation=True, max_length=reader.max_length)
        lengths = np.array([len(ids) for ids in rows["input_ids"]], np.int32)
        found: list[str | None] = [None] * len(lengths)
        for batch in plan_batches(lengths, None, reader.batch_tokens, None):
            for i, start, end in zip(batch, *reader.logits(rows, batch), strict=True):
                text = self._text(rows["input_ids"][i][start.argmax() : end.argmax() + 1])
                found[i] = None if text == self.no_answer else text
        return found

    def _text(self, ids: list[int]) -> str:
        tokens = self.reader.tokenizer.convert_ids_to_tokens(ids)
        if self._word_pieces:  # today's decoder also joins what stands around punctuation; the scripts' did not
            return " ".join(tokens).replace(" ##", "").strip()
        return str(self.reader.tokenizer.convert_tokens_to_string(tokens))
