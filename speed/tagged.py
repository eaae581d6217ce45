"""Answers with marked spans beside contexts of mixed lengths, and a random ModernBERT that two sides can load alike."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from faithkit.records import FAITHFUL, HALLUCINATED, Example, Span
from faithkit.span_types import TYPES
from speed.mixed import _ids

CONTEXT, ANSWER = (50, 900), (20, 200)  # tokens, log-uniform
MARKED = 0.4  # of the answers have a span: as in RAGTruth
FOUND, NUM_SETTLED = 0.05, 16  # of the tokens a tagger marks, and on how many examples its bias is settled
DESCRIPTION = (
    f"contexts of {CONTEXT[0]} to {CONTEXT[1]} tokens and answers of {ANSWER[0]} to {ANSWER[1]} (log-uniform), made of "
    f"the embedded corpus's sentences; {MARKED:.0%} of the answers have spans"
)


def mixed_tagged(tokenizer: Any, count: int, seed: int = 0) -> list[Example]:
    """Examples whose sentences are real to a tokenizer and whose spans are anywhere."""
    from data_modules.embedded.corpus import generate

    texts = [e.knowledge for e in generate("train", 4000, seed)]
    sentences = list(dict.fromkeys(s + "." for text in texts for s in text.rstrip(".").split(". ")))
    size = [len(ids) for ids in _ids(tokenizer, sentences)]
    rng = np.random.default_rng(seed)
    made = []
    for number in range(count):
        knowledge, response = (_text(sentences, size, limits, rng) for limits in (CONTEXT, ANSWER))
        spans = _spans(response, rng) if rng.random() < MARKED else ()
        made.append(
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
    return made


def _text(sentences: Sequence[str], size: Sequence[int], limits: tuple[int, int], rng: np.random.Generator) -> str:
    """Sentences of about a wanted number of tokens in all; the last is cut at a word."""
    wanted = int(np.exp(rng.uniform(*np.log(limits))))
    chosen: list[str] = []
    while wanted > 0:
        place = int(rng.integers(len(sentences)))
        words = sentences[place].split(" ")
        kept = len(words) if size[place] <= wanted else max(1, len(words) * wanted // size[place])
        chosen.append(" ".join(words[:kept]))
        wanted -= size[place]
    return " ".join(chosen)


def _spans(response: str, rng: np.random.Generator) -> tuple[Span, ...]:
    """One or two stretches of words."""
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
    """A random encoder of ModernBERT's kind (window 128, each third layer global) and a byte-level BPE, in a folder."""
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
    """The encoder with a random head of two classes that marks a twentieth of the tokens, as trained ones do."""
    import torch
    from transformers import AutoModelForTokenClassification, AutoTokenizer

    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(weights)
    model = AutoModelForTokenClassification.from_pretrained(weights, num_labels=2).eval()
    with torch.no_grad():
        model.classifier.weight.mul_(20)  # far enough from the threshold that rounding decides nothing
        logits = [
            model(**tokenizer(e.knowledge, e.response, return_tensors="pt")).logits[0] for e in examples[:NUM_SETTLED]
        ]
        odds = torch.cat([one[:, 1] - one[:, 0] for one in logits])
        model.classifier.bias[1] -= odds.quantile(1 - FOUND)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
