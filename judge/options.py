"""The options of a judge: how it is asked, the block `judge`, and how one is trained, the block `model`."""

from typing import Annotated

from faithkit.settings.check import options
from faithkit.settings.types import (
    ALL_LINEAR,
    MAX_ALPHA,
    Count,
    Hint,
    OneOf,
    OrNull,
    PartialShare,
    Positive,
    Range,
    Rank,
    Switch,
    Text,
    Texts,
    Tokens,
)
from faithkit.training.training_options import Aim

ASKS = VERDICT, JUDGEMENT, STEPS, SPANS = "verdict", "judgement", "steps", "spans"
TRAINABLE = (VERDICT, JUDGEMENT, SPANS)  # ways of asking that a judge can be trained for
MAX_EXAMPLES = 64  # in a prompt
NumExamples = Annotated[int, Range(ge=1, le=MAX_EXAMPLES)]
Modules = Annotated[
    Annotated[str, OneOf((ALL_LINEAR,))] | Texts,
    Hint("use all-linear, or a list of layers' names: [q_proj,v_proj]"),
]


@options()
class AskOptions:
    """The block `judge` of evaluate.py.

    Args:
        ask: The way of asking, which selects the prompt.
        prompts: A folder with other prompts, `<ask>.txt`; None takes the built-in prompts.
        num_samples: Replies to each prompt. Several replies are sampled, the majority decides, and the fraction of
            hallucinated verdicts is the probability.
        temperature: Temperature of several samples.
        max_new_tokens: Maximum length of a reply; None takes the default of `ask`.
        examples: Examples in the prompt: a file (judge/prompt.py), or the number of training rows that evaluate.py
            draws.
        written: Generates and parses the verdict without a constrained form, as in the papers, instead of computing
            its probability; unparsed replies are counted.
    """

    ask: Annotated[str, OneOf(ASKS)] = VERDICT
    prompts: Text | None = None
    num_samples: Count = 1
    temperature: Positive = 1.0
    max_new_tokens: Count | None = None
    examples: Annotated[
        NumExamples | Text | None, Hint(f"use a number from 1 to {MAX_EXAMPLES}, a file's path, or null")
    ] = None
    written: Switch = False


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
    lora_modules: Modules = ALL_LINEAR
