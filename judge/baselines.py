"""Prompted baselines of judges: LMvLM and SelfCheckGPT.

LMvLM (Cohen et al. 2023): one language model examines another about a response, then decides. The examiner sees the
response and the conversation, but not the knowledge. It writes questions; the examinee, which sees knowledge and
conversation but not the response, answers them. After several turns the examiner decides from the answers whether the
response is hallucinated. The prompts are not those of the paper.

SelfCheckGPT (Manakul et al. 2023): what a model made up, it says differently each time. Each sentence of a response is
compared with samples; the response's score is the mean over its sentences. Nothing is trained, and only the model that
the samples come from reads the knowledge.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, product
from math import exp, log
from statistics import fmean
from typing import NamedTuple, Protocol

import numpy as np
from tqdm.auto import tqdm

from faithkit.arguments import read_examples
from faithkit.detector import CONTRADICTION, ENTAILMENT, NEUTRAL, Entailment
from faithkit.errors import UserError
from faithkit.inference.prompts import TextPrompt, read_text_prompt
from faithkit.inference.text import NUCLEUS, Decoding, Form, Message, TextEngine
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, UNTYPED, Example, Prediction, Span
from faithkit.statistics.spread import Values
from faithkit.words import sentence_places, words_and_marks
from judge.judge import Judge
from judge.options import CHOICES, AskOptions, ExaminerOptions
from judge.prompt import OPTIONAL_FIELDS, example_values, read_prompt
from judge.questions import CHUNK_SIZE, ask, messages_about
from judge.reply import read_verdict

QUESTIONS, ANSWERS, DECISION = "examiner_questions", "examiner_answers", "examiner_decision"
NUMBERING = "0123456789.-*) \t"  # before a question in a list
START = "\0"  # before the first word of a text, where n-grams begin
SUPPORTED = {HALLUCINATED: 0.0, FAITHFUL: 1.0}  # a yes is read as the one label, a no as the other
UNREAD = 0.5
Samples = Callable[[Sequence[Example]], list[list[str]]]  # gives the samples of each example; none if there are none
MODEL = "model"  # in an example's `meta`: who wrote its response
COMPARED_TOGETHER = 64  # responses that are compared together
NO_SAMPLES = "there are no samples to compare with"


class Examiner:
    """Detects hallucinations by cross-examination.

    Args:
        engine: The examiner.
        examinee: Answers the questions.
        prompts: A folder with other prompts; None takes the built-in prompts.

    Attributes:
        num_unasked: Examples without any question, which were judged without answers.
    """

    def __init__(self, engine: TextEngine, examinee: TextEngine, options: ExaminerOptions, prompts: str | None = None):
        self.engine, self.examinee, self.options = engine, examinee, options
        read = partial(read_text_prompt, "judge", folder=prompts, optional=OPTIONAL_FIELDS)
        self._questions = read(QUESTIONS, "response", "exchange")
        self._answers = read(ANSWERS, "questions")
        self._judge = Judge(engine, AskOptions(), template=read_prompt(DECISION, prompts))
        self.num_unasked = 0

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """Yields one prediction for each example, in their order; `text` contains the questions and answers."""
        examples = read_examples(examples)
        for begin in range(0, len(examples), CHUNK_SIZE):
            chunk = examples[begin : begin + CHUNK_SIZE]
            exchanges = [""] * len(chunk)  # the questions and answers of each example
            decoding = Decoding(max_new_tokens=self.options.max_new_tokens)
            open_examples = list(range(len(chunk)))  # one without further questions is finished
            for _ in range(self.options.turns or 1):
                prompts = [
                    messages_about(self._questions, chunk[i], response=chunk[i].response, exchange=exchanges[i])
                    for i in open_examples
                ]
                asked = ask(self.engine, prompts, decoding)
                questioned = []
                for i, reply in zip(open_examples, asked, strict=True):
                    # One question per line, without those that were asked before.
                    lines = (reply.texts[0] if reply.texts else "").splitlines()
                    written = (line.strip().lstrip(NUMBERING) for line in lines if line.rstrip().endswith("?"))
                    known = exchanges[i].splitlines()
                    questions = [one for one in dict.fromkeys(written) if one not in known]
                    if questions := questions[: self.options.num_questions]:
                        questioned.append((i, questions))
                prompts = [
                    messages_about(self._answers, chunk[i], questions="\n".join(questions))
                    for i, questions in questioned
                ]
                replies = ask(self.examinee, prompts, decoding)
                for (i, questions), reply in zip(questioned, replies, strict=True):
                    answer = reply.texts[0].strip() if reply.texts else ""
                    exchanges[i] = "\n\n".join(filter(None, [exchanges[i], *questions, answer or "(no answer)"]))
                open_examples = [i for i, _ in questioned]
            self.num_unasked += exchanges.count("")
            # The judge reads the answers in place of the knowledge.
            rows = [replace(example, knowledge=exchange) for example, exchange in zip(chunk, exchanges, strict=True)]
            found = self._judge.predict_examples(rows, progress=progress)
            for prediction, exchange in zip(found, exchanges, strict=True):
                yield replace(prediction, text=prediction.text or exchange)


class Checked(NamedTuple):
    """The sentences of a response, and the samples that they are compared with."""

    sentences: list[str]
    samples: list[str]

    @property
    def pairs(self) -> Iterator[tuple[str, str]]:
        """Each sentence with each sample."""
        return product(self.sentences, self.samples)


Measure = Callable[[Sequence[Checked]], list[list[float]]]  # scores each sentence of each response


class Similarity(Protocol):
    """Scores how alike the texts of pairs are."""

    def score(self, responses: Sequence[str], knowledge: Sequence[str]) -> Values: ...


def bert_scores(checked: Sequence[Checked], f1: Similarity) -> list[list[float]]:
    """Compares with the sentence of each sample that is most alike; one without words is as unlike as unrelated ones.

    Args:
        f1: Gives rescaled F1.
    """
    parts = {text: split_sentences(text) for one in checked for text in one.samples}
    pairs = dict.fromkeys((sentence, part) for one in checked for sentence, text in one.pairs for part in parts[text])
    found = f1.score([sentence for sentence, _ in pairs], [part for _, part in pairs])
    alike = dict(zip(pairs, np.asarray(found, np.float64).tolist(), strict=True))

    def best(sentence: str, text: str) -> float:
        return max((alike[sentence, part] for part in parts[text]), default=0.0)

    return [[1 - fmean(best(sentence, text) for text in one.samples) for sentence in one.sentences] for one in checked]


def nli_scores(checked: Sequence[Checked], model: Entailment) -> list[list[float]]:
    """Asks an NLI model whether the samples contradict; a critic has one other class, which counts as contradiction."""
    pairs = [pair for one in checked for pair in one.pairs]
    found = model.entailment([sentence for sentence, _ in pairs], [text for _, text in pairs])
    against = found[:, CONTRADICTION] if found[:, CONTRADICTION].any() else found[:, NEUTRAL]
    return _means(checked, (against / (against + found[:, ENTAILMENT])).tolist())


def ngram_scores(checked: Sequence[Checked], *, order: int = 1, unlikeliest: bool = False) -> list[list[float]]:
    """Counts words: no model at all.

    Args:
        order: Words that are counted together: p(word | the words before) = count of all / count of those before.
        unlikeliest: Takes a sentence's unlikeliest word, in place of the mean.
    """

    def grams(text: str) -> list[tuple[str, ...]]:
        words = [START] * (order - 1) + words_and_marks(text)
        return [tuple(words[place : place + order]) for place in range(len(words) - order + 1)]

    found = []
    for one in checked:
        texts = [*one.sentences, *chain.from_iterable(map(split_sentences, one.samples))]
        whole = [gram for text in texts for gram in grams(text)]
        counts, before = Counter(whole), Counter(gram[:-1] for gram in whole)
        surprises = [[log(before[gram[:-1]] / counts[gram]) for gram in grams(text)] or [0.0] for text in one.sentences]
        found.append([max(values) if unlikeliest else fmean(values) for values in surprises])
    return found


def prompted_scores(checked: Sequence[Checked], engine: TextEngine, prompt: TextPrompt) -> list[list[float]]:
    """Asks a language model whether a sample supports a sentence.

    Args:
        prompt: With the fields `context` and `sentence`.
    """
    asked = [prompt.messages(context=text, sentence=sentence) for one in checked for sentence, text in one.pairs]
    replies = ask(engine, asked, Decoding(max_new_tokens=4), Form(choices=CHOICES))
    verdicts = (read_verdict(reply.texts[0]) if reply.texts else UNPARSED for reply in replies)
    return _means(checked, [SUPPORTED.get(verdict, UNREAD) for verdict in verdicts])


def _means(checked: Sequence[Checked], values: Iterable[float]) -> list[list[float]]:
    """Averages the values of all pairs over the samples of each sentence."""
    rest = iter(values)
    return [[fmean(next(rest) for _ in one.samples) for _ in one.sentences] for one in checked]


def split_sentences(text: str) -> list[str]:
    """The sentences of a text."""
    return [text[begin:end] for begin, end in sentence_places(text)]


def draw_samples(
    examples: Sequence[Example],
    engine: TextEngine,
    prompt: TextPrompt,
    *,
    num_samples: int = 5,
    temperatures: Sequence[float] = (1.0,),
    max_new_tokens: int = 96,
) -> list[list[str]]:
    """Draws samples from a language model, which replies to what the responder had or rephrases the response.

    An example whose fields of the prompt are all empty has no samples; nor has one with a failed request. Equal prompts
    are asked once, so responses to one prompt have the same samples.

    Args:
        prompt: With the fields `knowledge` and `history`, or with `response`, of which a model writes other versions.
        num_samples: At each temperature.
    """
    prompts = {example.id: messages_about(prompt, example) for example in examples if has_prompt(prompt, example)}
    distinct = list(dict.fromkeys(prompts.values()))
    texts: dict[tuple[Message, ...], list[str]] = {messages: [] for messages in distinct}
    for temperature in temperatures:
        decoding = Decoding(
            strategy=NUCLEUS,
            top_p=1.0,
            temperature=temperature,
            num_samples=num_samples,
            max_new_tokens=max_new_tokens,
        )
        for messages, reply in zip(distinct, ask(engine, distinct, decoding), strict=True):
            texts[messages] += [text for text in reply.texts if text.strip()]
    return [texts[prompts[example.id]] if example.id in prompts else [] for example in examples]


def has_prompt(prompt: TextPrompt, example: Example) -> bool:
    """Reports whether an example has a value for any field of a prompt."""
    values = {**example_values(example), "response": example.response.strip()}
    return any(values[name] for name in (*prompt.fields, *prompt.optional) if f"{{{name}}}" in prompt.text)


def other_responses(given: Iterable[Example]) -> Samples:
    """Takes the responses of the other models to the same source, as RAGTruth's SelfCheckGPT does.

    Raises:
        UserError: The responses do not say which model wrote them.
    """
    by_group = defaultdict(list)
    for example in given:
        if example.meta.get(MODEL) is None:
            problem = f"selfcheck.samples=others: rows of {example.source} do not name the models that wrote them"
            raise UserError(problem, hint="selfcheck.samples=engine engine=transformers engine.model=NAME")
        by_group[example.source, example.group].append(example)

    def draw(examples: Sequence[Example]) -> list[list[str]]:
        groups = [by_group.get((example.source, example.group), ()) for example in examples]
        return [
            [one.response for one in group if one.meta[MODEL] != example.meta[MODEL]]
            for example, group in zip(examples, groups, strict=True)
        ]

    return draw


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """A detector by samples.

    Args:
        threshold: A response is called hallucinated from this score on; sentences that reach it are marked.
        unbounded: The measure has no upper end, as -log p; x is told as 1 - exp(-x).
    """

    measure: Measure
    samples: Samples
    threshold: float = 0.5
    unbounded: bool = False

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """One prediction for each example, in their order; one without samples is unparsed."""
        examples = read_examples(examples)
        for begin in tqdm(range(0, len(examples), COMPARED_TOGETHER), "comparing", disable=not progress, unit="chunk"):
            chunk = examples[begin : begin + COMPARED_TOGETHER]
            drawn = self.samples(chunk)
            places = [sentence_places(example.response) for example in chunk]
            compared = [place for place in range(len(chunk)) if drawn[place] and places[place]]
            checked = [Checked([chunk[i].response[a:b] for a, b in places[i]], drawn[i]) for i in compared]
            scores = dict(zip(compared, self.measure(checked) if checked else [], strict=True))
            for number, example in enumerate(chunk):
                if number not in scores:
                    yield Prediction(id=example.id, label=UNPARSED, text=NO_SAMPLES)
                    continue
                own = scores[number]
                score = self._share(sum(own) / len(own))
                spans = [
                    Span(start=begin, end=end, label=UNTYPED, score=share)
                    for (begin, end), share in zip(places[number], map(self._share, own), strict=True)
                    if share >= self.threshold
                ]
                label = HALLUCINATED if score >= self.threshold else FAITHFUL
                yield Prediction(id=example.id, label=label, score=score, spans=tuple(spans))

    def _share(self, score: float) -> float:
        return 1 - exp(-score) if self.unbounded else min(1.0, max(0.0, score))
