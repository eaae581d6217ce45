"""Q2: asks about each part of a response, and compares the knowledge's answers (Honovich et al. 2021, section 3).

1. Candidate answers are taken from the response, and questions are generated for each, personal ones dropped.
2. The first question that the response itself answers with the candidate is valid.
3. That question is answered on the knowledge. Its score is 0 without an answer, else the token F1 of candidate and
   answer; the NLI variant replaces an F1 below 1 by 1 (entailment) or 0 (contradiction).
4. A response's score is the mean over its questions. Without a valid question it is 1, 0.5 or 0, as the knowledge
   entails the response, leaves it open or contradicts it.

Use it where no trained critic fits the domain. Its value depends on the three models, so compare only under the same
ones; opinions and small talk give no question. Every model is asked in batches over all responses: candidates are
spaCy's entities and noun chunks, a seq2seq model writes questions, and an extractive one answers them.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from faithkit.detector import CONTRADICTION, ENTAILMENT, Entailment
from faithkit.errors import UserError
from faithkit.fast import plan_batches
from faithkit.metrics.responses.ngrams import count_shared_grams
from faithkit.statistics.spread import Values
from faithkit.weights.load import load_pretrained, longest_input
from faithkit.weights.resolve import resolve
from faithkit.words import answer_words, apostrophe_words, word_set

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
TextPair = tuple[str, str]  # premise, hypothesis
# A question with one of these asks the reader or the speaker about themselves: no text answers it.
PERSONAL = word_set("i me my mine myself you your yours yourself yourselves")
NLI_SCORES = {ENTAILMENT: 1.0, CONTRADICTION: 0.0}


class CachedCalls(Generic[Key, Value]):
    """Answers from memory, and from the model, in one batch, what it has not been asked before.

    Args:
        ask: From distinct keys to their values, in the same order.
    """

    def __init__(self, ask: Callable[[Sequence[Key]], Sequence[Value]]):
        self._ask = ask
        self._known: dict[Key, Value] = {}

    def __call__(self, keys: Sequence[Key]) -> list[Value]:
        new = [key for key in dict.fromkeys(keys) if key not in self._known]
        if new:
            self._known.update(zip(new, self._ask(new), strict=True))
        return [self._known[key] for key in keys]


def make_statements(question: str, answer: str, candidate: str) -> TextPair:
    """Makes of two answers to a question the two statements that the NLI model compares."""
    return f"{question} {answer}.", f"{question} {candidate}."


def _find_usable(questions: Sequence[str]) -> list[bool]:
    return [bool(text) and PERSONAL.isdisjoint(apostrophe_words(text)) for text in questions]


def clean_answer(text: str) -> str:
    """Leaves of an answer its words in lower case, without articles and punctuation."""
    return " ".join(answer_words(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Q2Rules:
    """The rules of a protocol; the defaults are ours.

    Args:
        usable: Which questions are asked at all.
        clean: What is left of an answer when two are compared.
        comparison: The premise and hypothesis of (question, answer, candidate); None keeps their F1.
        fallback: How response and knowledge are written where the NLI model compares them themselves.
    """

    usable: Callable[[Sequence[str]], list[bool]] = _find_usable
    clean: Callable[[str], str] = clean_answer
    comparison: Callable[[str, str, str], TextPair | None] = make_statements
    fallback: Callable[[str], str] = str


@dataclass(slots=True)
class AskedQuestion:
    """One valid question about a response, and what became of it."""

    question: str
    candidate: str
    answer: str | None = None
    f1: float = 0.0
    nli: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Q2Scores:
    """`f1` and `nli` of each response [N], its questions, and how many candidates it had."""

    f1: Values
    nli: Values
    asked: list[list[AskedQuestion]]
    num_candidates: list[int]


@dataclass(slots=True)
class _OpenCandidate:
    """A candidate with its questions, of which none is known to be valid yet."""

    response: int
    candidate: str
    questions: Sequence[str]
    found: AskedQuestion | None = field(default=None)


class Q2:
    """Scores responses with its models; no model is asked the same thing twice.

    Args:
        candidates: Finds the answers to ask about in each text.
        questions: Gives several questions for each answer in its context, the likeliest first.
        answers: Answers each question on its context; None where it has no answer there.
        rules: Those of another protocol, such as `official.official_q2`; the defaults are ours.
    """

    def __init__(
        self,
        candidates: Callable[[Sequence[str]], Sequence[tuple[str, ...]]],
        questions: Callable[[Sequence[str], Sequence[str]], Sequence[tuple[str, ...]]],
        answers: Callable[[Sequence[str], Sequence[str]], Sequence[str | None]],
        entailment: Entailment,
        rules: Q2Rules | None = None,
    ):
        self.rules = rules or Q2Rules()
        self.usable: CachedCalls[str, bool] = CachedCalls(self.rules.usable)
        self.candidates: CachedCalls[str, tuple[str, ...]] = CachedCalls(candidates)
        self.questions: CachedCalls[TextPair, tuple[str, ...]] = CachedCalls(lambda keys: questions(*_columns(keys)))
        self.answers: CachedCalls[TextPair, str | None] = CachedCalls(lambda keys: answers(*_columns(keys)))
        self.nli_labels: CachedCalls[TextPair, int] = CachedCalls(
            lambda keys: entailment.entailment(*_columns(keys)).argmax(1).tolist()
        )

    def score(self, responses: Sequence[str], knowledge: Sequence[str]) -> Q2Scores:
        """Scores each response against its knowledge."""
        candidates, clean = self.candidates(responses), self.rules.clean
        keys = [(candidate, responses[row]) for row, found in enumerate(candidates) for candidate in found]
        rows = [row for row, found in enumerate(candidates) for _ in found]
        generated = self.questions(keys)
        usable = iter(self.usable([question for questions in generated for question in questions]))
        opened = [
            _OpenCandidate(row, candidate, [question for question in questions if next(usable)])
            for row, (candidate, _), questions in zip(rows, keys, generated, strict=True)
        ]
        # The first question of each candidate that the response answers with it is valid.
        rank = 0
        while waiting := [one for one in opened if one.found is None and rank < len(one.questions)]:
            answers = self.answers([(one.questions[rank], responses[one.response]) for one in waiting])
            for one, answer in zip(waiting, answers, strict=True):
                if answer is not None and clean(answer) == clean(one.candidate):
                    one.found = AskedQuestion(one.questions[rank], one.candidate)
            rank += 1
        asked: list[list[AskedQuestion]] = [[] for _ in responses]
        for one in opened:
            if one.found is not None:
                asked[one.response].append(one.found)
        # They are answered on the knowledge, and these answers are scored.
        every = [(question, known) for of, known in zip(asked, knowledge, strict=True) for question in of]
        for (question, _), answer in zip(every, self.answers([(q.question, known) for q, known in every]), strict=True):
            question.answer = answer
        answered = [question for question, _ in every if question.answer is not None]
        words = [clean(question.candidate).split() for question in answered]
        [shared] = count_shared_grams(words, [clean(question.answer or "").split() for question in answered])
        for question, score in zip(answered, shared.f1.tolist(), strict=True):
            question.f1 = question.nli = score
        compared = [
            (question, pair)
            for question in answered
            if question.f1 < 1
            and (pair := self.rules.comparison(question.question, question.answer or "", question.candidate))
        ]
        for (question, _), label in zip(compared, self.nli_labels([pair for _, pair in compared]), strict=True):
            question.nli = NLI_SCORES.get(label, question.f1)
        f1, nli = (
            np.array([float(np.nan) if not of else sum(getattr(one, name) for one in of) / len(of) for of in asked])
            for name in ("f1", "nli")
        )
        # Without a valid question the knowledge is compared with the response.
        silent, written = [row for row, of in enumerate(asked) if not of], self.rules.fallback
        labels = self.nli_labels([(written(knowledge[row]), written(responses[row])) for row in silent])
        f1[silent] = nli[silent] = [NLI_SCORES.get(label, 0.5) for label in labels]
        return Q2Scores(f1, nli, asked, [len(found) for found in candidates])


def _columns(keys: Iterable[TextPair]) -> tuple[list[str], list[str]]:
    first, second = zip(*keys, strict=True)
    return list(first), list(second)


class ExtractiveAnswers:
    """Answers questions on texts of any length with an extractive model, many at once; "no answer" is an outcome.

    A long text is read through overlapping windows. The best span of all windows is the answer, unless the position of
    "no answer" has a higher score even in the window that gives it the lowest (Rajpurkar et al. 2018).

    Args:
        model: Of transformers' AutoModelForQuestionAnswering.
    """

    max_answer = 30  # tokens

    def __init__(self, model: Any, tokenizer: Any):
        self.model, self.tokenizer, self.device = model, tokenizer, next(model.parameters()).device
        self.batch_tokens = 1024 if self.device.type == "cpu" else 32_768
        self.max_length = min(512, longest_input(model, tokenizer))
        self.stride = min(128, self.max_length // 4)  # tokens that neighbouring windows share

    @classmethod
    def load(cls, weights: str, *, device: str | None = None, precision: str = "32-true") -> "ExtractiveAnswers":
        """Loads a model by folder, local name or hub name; `precision` as of `load_pretrained`."""
        model, tokenizer, _ = load_pretrained(
            "AutoModelForQuestionAnswering", weights, device=device, precision=precision
        )
        return cls(model, tokenizer)

    def answers(self, questions: Sequence[str], contexts: Sequence[str]) -> list[str | None]:
        """Gives a stretch of each context, or None if the question has no answer there."""
        if not questions:
            return []
        # A question that leaves the text no room is cut to half of the length.
        room = self.max_length // 2
        short = self.tokenizer(list(questions), add_special_tokens=False, return_offsets_mapping=True)
        cut = [
            question if len(offsets) <= room else question[: offsets[room - 1][1]]
            for question, offsets in zip(questions, short["offset_mapping"], strict=True)
        ]
        windows = self.tokenizer(
            cut,
            list(contexts),
            truncation="only_second",
            max_length=self.max_length,
            stride=self.stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        best: list[tuple[float, str]] = [(-np.inf, "")] * len(questions)
        nothing = np.full(len(questions), np.inf)
        owners = windows["overflow_to_sample_mapping"]
        lengths = np.array([len(row) for row in windows["input_ids"]], np.int32)
        for batch in plan_batches(lengths, None, self.batch_tokens, None):
            for i, start, end in zip(batch, *self.logits(windows, batch), strict=True):
                owner, text = owners[i], contexts[owners[i]]
                nothing[owner] = min(nothing[owner], start[0] + end[0])
                places = np.flatnonzero([part == 1 for part in windows.sequence_ids(int(i))])  # the text's tokens
                if not len(places):
                    continue
                step = places[None, :] - places[:, None]
                allowed = (step >= 0) & (step < self.max_answer)
                scores = np.where(allowed, start[places, None] + end[None, places], -np.inf)
                first, last = np.unravel_index(int(scores.argmax()), scores.shape)
                offsets = windows["offset_mapping"][i]
                if found := text[offsets[places[first]][0] : offsets[places[last]][1]].strip():
                    best[owner] = max(best[owner], (float(scores[first, last]), found))
        return [text if score > none else None for (score, text), none in zip(best, nothing, strict=True)]

    @torch.inference_mode()
    def logits(self, windows: Any, batch: NDArray[np.int64]) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
        """Gives the start and the end logits of each encoded row of a batch, without the padding's."""
        names = [name for name in self.tokenizer.model_input_names if name in windows]
        rows = {name: [windows[name][i] for i in batch] for name in names}
        inputs = self.tokenizer.pad(rows, padding_side="right", return_tensors="pt").to(self.device)
        output = self.model(**inputs)
        starts, ends = output.start_logits.double().cpu().numpy(), output.end_logits.double().cpu().numpy()
        lengths = [len(windows["input_ids"][i]) for i in batch]
        rows_of = [[row[:n] for row, n in zip(side, lengths, strict=True)] for side in (starts, ends)]
        return rows_of[0], rows_of[1]


class SpacyCandidates:
    """Finds entities, then those noun chunks that are no entity; each once, case aside.

    Args:
        pipeline: A spaCy pipeline with a parser and entities.
    """

    def __init__(self, pipeline: Any):
        self.pipeline = pipeline

    @classmethod
    def load(cls, name: str) -> "SpacyCandidates":
        """Loads a pipeline by local name, folder, or name of an installed package."""
        import spacy

        try:
            source = name if spacy.util.is_package(name) else resolve(name)
            pipeline = spacy.load(Path(source) if Path(source).is_dir() else source, exclude=["lemmatizer"])
        except OSError as error:
            hint = "use spacy-sm (local weights), a folder, or an installed pipeline such as en_core_web_sm"
            raise UserError(f"no spaCy pipeline {name!r}: {error}", hint=hint) from error
        return cls(pipeline)

    def candidates(self, texts: Sequence[str]) -> list[tuple[str, ...]]:
        """Finds the candidate answers of each text, in the order in which they are asked about."""
        found = []
        for document in self.pipeline.pipe(texts, batch_size=256):
            distinct: dict[str, str] = {}
            for span in (*document.ents, *document.noun_chunks):
                # Of these persons alone no question can be asked of the knowledge.
                if not {"i", "me", "you"}.issuperset(apostrophe_words(span.text)):
                    distinct.setdefault(span.text.lower(), span.text)
            found.append(tuple(distinct.values()))
        return found


class Seq2SeqQuestions:
    """Generates questions by beam search, as many as there are beams.

    Args:
        template: How an answer and its context are given to the model, as it was trained.
    """

    def __init__(self, model: Any, tokenizer: Any, *, template: str, max_new_tokens: int = 64):
        if "{answer}" not in template or "{context}" not in template:
            hint = "write it like 'answer: {answer}  context: {context}'"
            raise UserError(f"question_template is {template!r}", hint=hint)
        self.model, self.tokenizer, self.template, self.max_new_tokens = model, tokenizer, template, max_new_tokens
        self.device = next(model.parameters()).device
        self.batch_tokens = 512 if self.device.type == "cpu" else 32_768  # of the input, times beams
        self.max_length = longest_input(model, tokenizer)

    @classmethod
    def load(
        cls, weights: str, *, template: str, device: str | None = None, precision: str = "32-true"
    ) -> "Seq2SeqQuestions":
        """Loads a model by folder, local name or hub name.

        Args:
            precision: As of `load_pretrained`.
        """
        model, tokenizer, _ = load_pretrained("AutoModelForSeq2SeqLM", weights, device=device, precision=precision)
        return cls(model, tokenizer, template=template)

    def questions(self, answers: Sequence[str], contexts: Sequence[str]) -> list[tuple[str, ...]]:
        """Gives several questions for each answer in its context, the likeliest first."""
        prompts = self.prompts(answers, contexts)
        if not prompts:
            return []
        found = []
        for beams in self.generate(self.encode(prompts), 5, max_new_tokens=self.max_new_tokens):
            texts = self.tokenizer.batch_decode(beams, skip_special_tokens=True)
            found.append(tuple(text.strip().removeprefix("question:").strip() for text in texts))
        return found

    def encode(self, prompts: Sequence[str]) -> list[list[int]]:
        """Gives the model's input ids of each prompt, cut to what it reads."""
        return list(self.tokenizer(prompts, truncation=True, max_length=self.max_length)["input_ids"])

    def prompts(self, answers: Sequence[str], contexts: Sequence[str]) -> list[str]:
        """Fills the template with each answer and its context."""
        return [self.template.format(answer=a, context=c) for a, c in zip(answers, contexts, strict=True)]

    @torch.inference_mode()
    def generate(self, rows: Sequence[Sequence[int]], num_beams: int, **options: Any) -> list[list[list[int]]]:
        """Searches with transformers' `generate` with its options, in batches: all beams of each row."""
        lengths = np.array([len(row) for row in rows], np.int32)
        found: list[list[list[int]]] = [[] for _ in rows]
        for batch in plan_batches(lengths * num_beams, None, self.batch_tokens * num_beams, None):
            unpadded = {"input_ids": [rows[i] for i in batch]}
            inputs = self.tokenizer.pad(unpadded, padding_side="right", return_tensors="pt").to(self.device)
            ids = self.model.generate(
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                num_beams=num_beams,
                num_return_sequences=num_beams,
                do_sample=False,
                **options,
            )
            for place, i in enumerate(batch):
                found[i] = ids[place * num_beams : (place + 1) * num_beams].tolist()
        return found
