"""The options of a judge (`judge`, `model`), of a prompt's file, and of baselines (`selfcheck`, `examiner`)."""

import re
from typing import Annotated, ClassVar

from pydantic import Field

from faithkit.records import label_sets
from faithkit.settings.check import options
from faithkit.settings.types import (
    ALL_LINEAR,
    MAX_ALPHA,
    Conflict,
    Count,
    Hint,
    OneOf,
    OrNull,
    PartialShare,
    Positive,
    Range,
    Rank,
    Share,
    Switch,
    Text,
    Texts,
    Tokens,
)
from faithkit.training.training_options import Aim

ASKS = VERDICT, JUDGEMENT, STEPS, SPANS = "verdict", "judgement", "steps", "spans"
REPLIES = FIRST_WORD, LAST_LINE, JSON, TEXT = "first_word", "last_line", "json", "text"
SETS = tuple(label_sets())
YES, NO = CHOICES = ("Yes", "No")  # hallucinated, faithful
TRAINABLE = (VERDICT, JUDGEMENT, SPANS)  # ways of asking that a judge can be trained for
MAX_EXAMPLES = 64  # in a prompt
BERT_SCORE, NLI, NGRAM, PROMPT = MEASURES = ("bert_score", "nli", "ngram", "prompt")
DRAWN, REPHRASED, OTHERS = ("engine", "rephrased", "others")
MEAN, MAX = ("mean", "max")


@options()
class AskOptions:
    """The block `judge` of evaluate.py.

    Args:
        ask: The way of asking, which selects the prompt.
        prompts: A folder with other prompts: `<ask>.<task>.txt` for rows of a task, `<ask>.txt` for all others
            (judge/prompt.py), or diahalu or ragtruth; None takes the built-in prompts.
        num_samples: Replies to each prompt. Several replies are sampled, the majority decides, and the fraction of
            hallucinated verdicts is the probability.
        temperature: Temperature of several samples.
        max_new_tokens: Maximum length of a reply; None takes the default of `ask`.
        examples: Examples in the prompt: a file (judge/prompt.py), or a number: the first of `<ask>.examples.jsonl` in
            `prompts`, or training rows that evaluate.py draws.
        written: Generates and parses the verdict without a constrained form, as in the papers, instead of computing
            its probability; unparsed replies are counted.
    """

    ask: Annotated[str, OneOf(ASKS)] = VERDICT
    prompts: Text | None = None
    num_samples: Count = 1
    temperature: Positive = 1.0
    max_new_tokens: Count | None = None
    examples: Annotated[
        Annotated[int, Range(ge=1, le=MAX_EXAMPLES)] | Text | None,
        Hint(f"use a number from 1 to {MAX_EXAMPLES}, a file's path, or null"),
    ] = None
    written: Switch = False


@options()
class PromptHeader:
    """The header of a prompt's file, between lines of `---`: how a reply to this prompt is read.

    Args:
        reply: The place of the verdict: first_word, last_line, json (a key), text (a pattern anywhere). None is that
            of `judge.ask`.
        hallucinated: The word that means hallucinated, or the pattern (a regular expression); None is Yes.
        faithful: The same for faithful; None is No.
        verdict: The key of a JSON object with one of these words, or true or false.
        spans: The keys with lists of hallucinated parts. Without `verdict`, any part means hallucinated.
        label_set: The label set of these keys (faithkit/span_types.toml), which gives the parts their type.
        system: The system message, instead of that in system.txt.
    """

    reply: Annotated[Annotated[str, OneOf(REPLIES)] | None, Hint(f"use one of {', '.join(REPLIES)}")] = None
    hallucinated: Text | None = None
    faithful: Text | None = None
    verdict: Text | None = None
    spans: Texts | None = None
    label_set: Annotated[Annotated[str, OneOf(SETS)] | None, Hint(f"use one of {', '.join(SETS)}")] = None
    system: Text | None = None

    conflicts: ClassVar[tuple[Conflict, ...]] = (
        Conflict(
            lambda s: s.reply == JSON and not (s.verdict or s.spans),
            "reply: json without a key",
            "write verdict: KEY, or spans: KEY, or both",
        ),
        Conflict(
            lambda s: s.reply != JSON and (s.verdict or s.spans),
            "verdict and spans are keys of JSON",
            "write reply: json",
        ),
        Conflict(
            lambda s: s.label_set and not {*(s.spans or [""])} <= {*label_sets()[s.label_set]},
            "the keys of spans are no labels of {s.label_set}",
            "write spans: [LABEL, ...] with labels of its table in faithkit/span_types.toml, or leave label_set out",
        ),
        Conflict(
            lambda s: s.reply == TEXT and not (s.hallucinated and s.faithful),
            "reply: text without a pattern for each label",
            "write hallucinated: PATTERN and faithful: PATTERN",
        ),
        Conflict(
            lambda s: s.reply is None and (s.hallucinated or s.faithful),
            "words for a verdict, and no form of the reply",
            f"write reply: {', '.join(REPLIES[:-1])} or {REPLIES[-1]}",
        ),
        Conflict(
            lambda s: s.reply == TEXT and s.bad_pattern,
            "{s.bad_pattern} is not a regular expression",
            "put \\ before ( [ * + ? that stand for themselves",
        ),
        Conflict(
            lambda s: s.words[0].casefold() == s.words[1].casefold(),
            "hallucinated and faithful are both {s.words[0]}",
            "name the other word too: hallucinated: WORD and faithful: WORD",
        ),
    )

    @property
    def words(self) -> tuple[str, str]:
        """The words, or patterns, for hallucinated and faithful."""
        return self.hallucinated or YES, self.faithful or NO

    @property
    def bad_pattern(self) -> str:
        """The first of these that is not a regular expression; empty if both are."""
        for pattern in self.words:
            try:
                re.compile(pattern)
            except re.error:
                return pattern
        return ""


@options("model")
class JudgeOptions:
    """Options of `model=judge`.

    Args:
        weights: A causal model: a folder, hub name or local name.
        ask: The reply that it is trained for: verdict, judgement or spans.
        prompts: A folder with another prompt, `<ask>.txt`; None takes the built-in prompt.
        max_length: Tokens of prompt and reply; the oldest turns are removed if they do not fit.
        packed: Packs sequences without padding.
        share_beginnings: Batches rows with the same knowledge and history together, and encodes this prefix once.
        dropout: Dropout of the model; None keeps its default.
        gradient_checkpointing: Trades time for memory.
        threshold_aim: Metric that the threshold of P(hallucinated) maximises on validation.
        lora_rank: Trains only LoRA adapters of this rank; None trains all weights.
        lora_alpha: Scales the adapters' output, divided by the rank.
        lora_dropout: Dropout of the adapters' input.
        lora_modules: Layers with an adapter: all-linear, or suffixes of their names.
    """

    weights: Text
    max_length: Tokens
    ask: Annotated[str, OneOf(TRAINABLE)] = "judgement"
    prompts: Text | None = None
    packed: Switch = True
    share_beginnings: Switch = True
    dropout: PartialShare | None = None
    gradient_checkpointing: Switch = False
    threshold_aim: Aim = "macro_f1"
    lora_rank: Annotated[Rank | None, OrNull("to train all weights")] = None
    lora_alpha: Annotated[int, Range(ge=1, le=MAX_ALPHA)] = 32
    lora_dropout: PartialShare = 0.0
    lora_modules: Annotated[
        Annotated[str, OneOf((ALL_LINEAR,))] | Texts,
        Hint("use all-linear, or a list of layers' names: [q_proj,v_proj]"),
    ] = ALL_LINEAR


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
    samples: Annotated[str, OneOf((DRAWN, REPHRASED, OTHERS))] = DRAWN
    num_samples: Count = 5
    temperature: Annotated[
        Positive | Annotated[list[Positive], Field(min_length=1)], Hint("use a number above 0, or a list of them")
    ] = 1.0
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
