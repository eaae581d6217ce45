"""The block `selfcheck`: SelfCheckGPT in the place of a judge."""

from typing import Annotated

from pydantic import Field

from faithkit.settings.check import options
from faithkit.settings.types import Count, Hint, OneOf, OrNull, Positive, Range, Share, Text

BERT_SCORE, NLI, NGRAM, PROMPT = MEASURES = ("bert_score", "nli", "ngram", "prompt")
DRAWN, REPHRASED, OTHERS = SAMPLES = ("engine", "rephrased", "others")
MEAN, MAX = ("mean", "max")
Temperatures = Annotated[
    Positive | Annotated[list[Positive], Field(min_length=1)], Hint("use a number above 0, or a list of them")
]


@options("selfcheck")
class SelfCheckOptions:
    """The block `selfcheck` of evaluate.py; without a measure there is none.

    Args:
        measure: One of MEASURES.
        samples: `engine` draws replies to knowledge and history from engine.model; `rephrased` lets it rephrase the
            response, as of DiaHalu's dialogues; `others` takes the other models' responses to the same source.
        num_samples: That are drawn at each temperature.
        temperature: Of drawing; a list draws at each.
        max_new_tokens: Of a sample.
        threshold: A response is called hallucinated from this score on, and a sentence marked.
        nli: Of `nli`: an NLI model, or a critic that was trained on one's data.
        encoder: Of `bert_score`.
        num_layers: Of the encoder; None for all.
        baseline: F1 of unrelated sentences, which becomes 0; None takes the published one of roberta-large, else 0.
        order: Of `ngram`: words that are counted together.
        words: Of `ngram`: the mean of a sentence's words, or its unlikeliest.
    """

    measure: Annotated[str | None, OneOf((None, *MEASURES))] = None
    samples: Annotated[str, OneOf(SAMPLES)] = DRAWN
    num_samples: Count = 5
    temperature: Temperatures = 1.0
    max_new_tokens: Count = 96
    threshold: Share = 0.5
    nli: Text | None = None
    encoder: Text | None = None
    num_layers: Count | None = None
    baseline: Annotated[float, Range(gt=-1, lt=1)] | None = None
    order: Count = 1
    words: Annotated[str, OneOf((MEAN, MAX))] = MEAN

    @property
    def asks_model(self) -> bool:
        """Whether it asks the language model of the block `engine`."""
        return self.samples != OTHERS or self.measure == PROMPT

    @property
    def temperatures(self) -> list[float]:
        """The temperatures of drawing."""
        return self.temperature if isinstance(self.temperature, list) else [self.temperature]


@options("examiner")
class ExaminerOptions:
    """The block `examiner` of evaluate.py; without turns there is none.

    Args:
        turns: Of questions and answers before it decides.
        examinee: The model that answers, run as engine.model is; None takes engine.model itself.
        num_questions: In a turn, at most.
        max_new_tokens: Of the questions of a turn, and of its answers.
    """

    turns: Annotated[Count | None, OrNull("for no examiner")] = None
    examinee: Text | None = None
    num_questions: Count = 3
    max_new_tokens: Count = 160
