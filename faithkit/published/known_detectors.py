"""Declares detectors of others that `checkpoint=` takes by name; known_detectors.toml has one entry for each.

    checkpoint=minicheck-roberta-large             from the hub
    checkpoint=minicheck-roberta-large:FOLDER      from a copy of its hub repository
    checkpoint=lynx-8b:http://localhost:8000/v1    on an OpenAI-compatible server, for those that are language models

The key `reads` of an entry chooses its class here; the other keys are the fields of the class.
`faithkit_workflows.detectors.known` runs it. No code of a repository is run.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

WHOLE, SENTENCES = "whole", "sentences"
MEAN, MIN = "mean", "min"
LINES, BY_SENTENCES, EVEN = "lines", "sentences", "even"
TOKENS, WORDS, TREEBANK_WORDS = "tokens", "words", "treebank words"
FIRST_WORD = "first_word"
THRESHOLD = 0.5
TABLE = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """How a document is divided; the window that supports a claim most counts.

    Args:
        rule: LINES fills windows with sentences and keeps line breaks, BY_SENTENCES fills them with sentences, one a
            line, and EVEN makes windows of equally many sentences.
        unit: What `size` counts: tokens of the model, words between spaces, or words and marks as in the Penn Treebank.
    """

    rule: str
    unit: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDetector:
    """Declares a detector.

    Args:
        hub: Its repository on the model hub.
        file: The file with the weights, where it is not one that transformers finds.
        languages: ISO 639 codes of those that it reads, or any.
        figure: The published figure.
        source: Where it is published.
        rule: Where the original's format and rules are written.
    """

    name: str
    hub: str
    parameters: str
    licence: str
    figure: str
    source: str
    rule: str
    file: str = ""
    languages: Sequence[str] = ("en",)

    marks_spans: ClassVar[bool] = False

    @property
    def divides_sentences(self) -> bool:
        """Whether it needs a splitter of sentences."""
        return getattr(self, "claims", WHOLE) == SENTENCES or getattr(self, "windows", None) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairClassifier(KnownDetector):
    """`reads = "pair"`: a classifier of knowledge and response.

    Args:
        labels: The meaning of its classes.
    """

    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageTagger(KnownDetector):
    """`reads = "passages"`: a tagger of a response to a prompt.

    Args:
        prompt: With {question}, {num_passages}, and {passages} (numbered) or {knowledge} (one below the other).
        prompt_without_question: The same without {question}.
        prompts: Names the files of the original package with both prompts, in their place.
        passage: The word before the number of a passage.
    """

    prompt: str
    prompt_without_question: str
    prompts: str = ""
    passage: str = "passage"

    marks_spans: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowChecker(KnownDetector):
    """`reads = "windows"`: an entailment model of windows of the knowledge and claims of the response.

    Args:
        head: How its probabilities are read, a key of `critic.entailment.checker.HEADS`.
        base: The repository that its configuration and tokenizer come from; empty for its own.
        text: What it reads, with {document}, {claim}, and {eos} for the end token; empty for a pair of texts.
        max_length: Tokens that it reads, longer texts are cut; 0 for no limit.
        windows: None reads the document at once.
        claims: WHOLE responses, or SENTENCES of them.
        over_claims: MEAN or MIN of P(supported) over the claims of a response.
        supported: The class that means supported.
        answers: Tokens that mean unsupported and supported, of an encoder-decoder.
    """

    head: str
    base: str = ""
    text: str = ""
    max_length: int = 0
    windows: Windows | None = None
    claims: str = WHOLE
    over_claims: str = MIN
    supported: int = 1
    answers: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLanguageModel(KnownDetector):
    """A language model, which an engine runs on this machine or a server.

    Args:
        served: Why it runs on a server alone; empty for one that also runs here.
        hallucinated, faithful: The words or patterns of the verdicts.
        reply: Where the verdict is: first_word or text.
        new_tokens: Maximum length of a reply; 0 where none is written.
    """

    hallucinated: str = ""
    faithful: str = ""
    reply: str = "text"
    served: str = ""
    new_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptedJudge(KnownLanguageModel):
    """`reads = "prompt"`: a judge with its prompt.

    Args:
        prompt: With {knowledge}, {question} and {response}.
        system: The system message.
        claims: WHOLE responses, or SENTENCES of them, of which the least supported decides.
    """

    prompt: str
    system: str = ""
    claims: str = WHOLE


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateJudge(KnownLanguageModel):
    """`reads = "template"`: a judge whose chat template writes the question.

    Args:
        template: Its variables.
    """

    template: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanLister(KnownLanguageModel):
    """`reads = "span list"`: a language model that lists unsupported texts with their types.

    The system message is in its card, which is not copied here.

    Args:
        prompt: With {question}, {knowledge} and {response}.
        prompt_without_question: The same without {question}.
        passage: As of `PassageTagger`.
    """

    prompt: str
    prompt_without_question: str
    passage: str = "passage"

    marks_spans: ClassVar[bool] = True


KINDS: Mapping[str, type[KnownDetector]] = {
    "pair": PairClassifier,
    "passages": PassageTagger,
    "windows": WindowChecker,
    "prompt": PromptedJudge,
    "span list": SpanLister,
    "template": TemplateJudge,
}


@cache
def known_detectors() -> Mapping[str, KnownDetector]:
    """Reads the declarations, by name."""
    rows: dict[str, dict[str, Any]] = {}
    for row in tomllib.loads(TABLE.read_text(encoding="utf-8"))["detector"]:
        if "windows" in row:
            row["windows"] = Windows(**row["windows"])
        rows[row["name"]] = {**rows.get(row.pop("like", ""), {}), **row}
    return {name: KINDS[row.pop("reads")](**row) for name, row in rows.items()}
