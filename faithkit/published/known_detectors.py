"""Declares detectors of others that `checkpoint=` takes by name; known_detectors.toml has one entry for each.

    checkpoint=minicheck-roberta-large             from the hub
    checkpoint=minicheck-roberta-large:FOLDER      from a copy of its hub repository
    checkpoint=lynx-8b:http://localhost:8000/v1    on an OpenAI-compatible server, for those that are language models

An entry states what the model reads, how long documents and responses are divided, how the scores are combined, and
what was published about it. `faithkit_workflows.detectors.known` runs it. No code of a repository is run.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

TAGGER, CRITIC, JUDGE, GUARDIAN = "tagger", "critic", "judge", "guardian"
CLASSIFIER, FIRST_TOKEN, T5_ENCODER, ALIGNSCORE = "classifier", "first_token", "t5_encoder", "alignscore"
LANGUAGE_MODELS = (JUDGE, GUARDIAN)  # run by an engine, on this machine or a server
WHOLE, SENTENCES = "whole", "sentences"
MEAN, MIN = "mean", "min"
LINES, BY_SENTENCES, EVEN = "lines", "sentences", "even"
TOKENS, WORDS, TREEBANK_WORDS = "tokens", "words", "treebank words"
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
        base: The repository that its configuration and tokenizer come from; empty for its own.
        reads: What runs it: TAGGER, CRITIC, JUDGE, GUARDIAN, or a head of an entailment model: CLASSIFIER (one text),
            FIRST_TOKEN (an encoder-decoder's first token), T5_ENCODER (a T5 encoder's first state), ALIGNSCORE
            (a pair of texts).
        text: What an entailment model reads, with {document}, {claim}, and {eos} for the end token; empty for a pair.
        max_length: Tokens that it reads, longer texts are cut; 0 for no limit.
        windows: None reads the document at once.
        claims: WHOLE responses, or SENTENCES of them.
        over_claims: MEAN or MIN of P(supported) over the claims of a response.
        supported: The class that means supported.
        answers: Tokens that mean unsupported and supported, of FIRST_TOKEN.
        labels: The meaning of the classes of a CRITIC.
        prompt: Of a language model, with {knowledge}, {question} and {response}; of a TAGGER, with {question},
            {num_passages} and {passages}.
        prompt_without_question: Of a TAGGER, with {passages}.
        system: The system message.
        template: Variables of the chat template.
        served: Why it runs on a server alone; empty for a language model that also runs here.
        reply: Where a judge's verdict is: first_word or text.
        hallucinated, faithful: The words or patterns of the verdicts.
        new_tokens: Maximum length of a reply; 0 where none is written.
        languages: ISO 639 codes of those that it reads, or any.
        figure: The published figure.
        source: Where it is published.
        rule: Where the original's format and rules are written.
    """

    name: str
    hub: str
    reads: str
    parameters: str
    licence: str
    figure: str
    source: str
    rule: str
    file: str = ""
    base: str = ""
    text: str = ""
    max_length: int = 0
    windows: Windows | None = None
    claims: str = WHOLE
    over_claims: str = MIN
    supported: int = 1
    answers: tuple[int, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    prompt: str = ""
    prompt_without_question: str = ""
    system: str = ""
    template: Mapping[str, Any] = field(default_factory=dict)
    served: str = ""
    reply: str = ""
    hallucinated: str = ""
    faithful: str = ""
    new_tokens: int = 0
    languages: tuple[str, ...] = ("en",)


@cache
def known_detectors() -> Mapping[str, KnownDetector]:
    """Reads the declarations, by name."""
    rows: dict[str, dict[str, Any]] = {}
    found = {}
    for row in tomllib.loads(TABLE.read_text(encoding="utf-8"))["detector"]:
        rows[row["name"]] = {**rows.get(row.pop("like", ""), {}), **row}
    for name, row in rows.items():
        windows = Windows(**row["windows"]) if "windows" in row else None
        lists: dict[str, Any] = {key: tuple(row[key]) for key in ("answers", "languages") if key in row}
        found[name] = KnownDetector(**{**row, "windows": windows, **lists})
    return found
