"""Makes contexts of mixed lengths with span-marked answers, and a random ModernBERT that both sides can load."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from faithkit.records import FAITHFUL, HALLUCINATED, Example, Span
from faithkit.span_types import TYPES
from speed.mixed import token_ids

CONTEXT, ANSWER = (50, 900), (20, 200)  # tokens, log-uniform
MARKED_SHARE = 0.4  # of the answers have a span: as in RAGTruth
FOUND_SHARE = 0.05  # of the tokens the random tagger marks
NUM_FITTED = 16  # examples that its bias is fitted on
DESCRIPTION = (
    f"contexts of {CONTEXT[0]} to {CONTEXT[1]} tokens and answers of {ANSWER[0]} to {ANSWER[1]} (log-uniform), made of "
    f"the embedded corpus's sentences; {MARKED_SHARE:.0%} of the answers have spans"
)


def mixed_tagged(tokenizer: Any, count: int, seed: int = 0) -> list[Example]:
    """Makes examples of real sentences whose spans are drawn at random."""
    from data_modules.embedded.corpus import generate

    texts = [e.knowledge for e in generate("train", 4000, seed)]
    sentences = list(dict.fromkeys(s + "." for text in texts for s in text.rstrip(".").split(". ")))
    size = [len(ids) for ids in token_ids(tokenizer, sentences)]
    rng = np.random.default_rng(seed)
    examples = []
    for number in range(count):
        knowledge, response = (_text(sentences, size, limits, rng) for limits in (CONTEXT, ANSWER))
        spans = _spans(response, rng) if rng.random() < MARKED_SHARE else ()
        examples.append(
            Example(
                id=f"mixed:{number}",
                source="mixed",
                split="train",
                group=str(number),
                knowledge=knowledge,
                response=response,
                label=HALLUCINATED if spans else FAITHFUL,
                spans=spans,
                meta={"task": "QA"},
            )
        )
    return examples


def _text(sentences: Sequence[str], size: Sequence[int], limits: tuple[int, int], rng: np.random.Generator) -> str:
    """Joins sentences up to about a drawn number of tokens; the last one is cut at a word."""
    num_left = int(np.exp(rng.uniform(*np.log(limits))))
    chosen: list[str] = []
    while num_left > 0:
        place = int(rng.integers(len(sentences)))
        words = sentences[place].split(" ")
        num_kept = len(words) if size[place] <= num_left else max(1, len(words) * num_left // size[place])
        chosen.append(" ".join(words[:num_kept]))
        num_left -= size[place]
    return " ".join(chosen)


def _spans(response: str, rng: np.random.Generator) -> tuple[Span, ...]:
    """Draws one or two spans of whole words."""
    starts = [0, *(i + 1 for i, character in enumerate(response) if character == " ")]
    ends = [*(start - 1 for start in starts[1:]), len(response)]
    found: list[Span] = []
    for half in np.array_split(np.arange(len(starts)), int(rng.integers(1, 3))):
        if len(half):
            first = int(rng.choice(half))
            last = min(first + int(rng.integers(1, 12)), int(half[-1]))
            found.append(Span(start=starts[first], end=ends[last], label=str(rng.choice(TYPES))))
    return tuple(found)


def write_modernbert(folder: Path, *, hidden_size: int = 256, num_layers: int = 6, seed: int = 0) -> str:
    """Writes a random ModernBERT encoder (window 128, each third layer global) with a byte-level BPE to a folder."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
    from transformers import ModernBertConfig, ModernBertModel, PreTrainedTokenizerFast

    from data_modules.embedded.corpus import generate

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=8000, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator((f"{e.knowledge} {e.response}" for e in generate("train", 4000, seed)), trainer)
    ids = {name: tokenizer.token_to_id(f"[{name.upper()}]") for name in ("pad", "cls", "sep")}
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", ids["cls"]), ("[SEP]", ids["sep"])],
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_input_names=["input_ids", "attention_mask"],
        model_max_length=8192,
    )
    fast.save_pretrained(folder)
    config = ModernBertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=hidden_size,
        intermediate_size=hidden_size * 3 // 2,
        num_hidden_layers=num_layers,
        num_attention_heads=hidden_size // 64,
        pad_token_id=ids["pad"],
        cls_token_id=ids["cls"],
        bos_token_id=ids["cls"],
        sep_token_id=ids["sep"],
        eos_token_id=ids["sep"],
    )
    torch.manual_seed(seed)
    ModernBertModel(config).save_pretrained(folder)
    return str(folder)


def write_peer_tagger(weights: str, examples: Sequence[Example], folder: Path, seed: int = 0) -> str:
    """Writes the encoder with a random head of two classes that marks a twentieth of the tokens, as trained ones do."""
    import torch
    from transformers import AutoModelForTokenClassification, AutoTokenizer

    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(weights)
    model = AutoModelForTokenClassification.from_pretrained(weights, num_labels=2).eval()
    with torch.no_grad():
        model.classifier.weight.mul_(20)  # far enough from the threshold that rounding decides nothing
        logits = [
            model(**tokenizer(e.knowledge, e.response, return_tensors="pt")).logits[0] for e in examples[:NUM_FITTED]
        ]
        odds = torch.cat([one[:, 1] - one[:, 0] for one in logits])
        model.classifier.bias[1] -= odds.quantile(1 - FOUND_SHARE)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
