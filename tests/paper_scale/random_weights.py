"""Writes small models with random weights that have the files, names and settings of the published ones.

The vocabularies are learned from the embedded corpus; the special tokens are those of the published tokenizers.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from data_modules.embedded.corpus import exchanges

ENCODER = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 2}
SIDES = ("encoder", "decoder")
ROBERTA = {"vocab_size": 50_265, "max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
POOLER = {"roberta.pooler.dense.weight": (32, 32), "roberta.pooler.dense.bias": (32,)}
NLI_LABELS = {0: "CONTRADICTION", 1: "NEUTRAL", 2: "ENTAILMENT"}
DEBERTA = {"vocab_size": 128_100, "max_position_embeddings": 512, "relative_attention": True, "position_buckets": 256}
DEBERTA |= {"norm_rel_ebd": "layer_norm", "share_att_key": True, "pos_att_type": ["p2c", "c2p"]}
DEBERTA |= {"layer_norm_eps": 1e-7, "max_relative_positions": -1, "position_biased_input": False, "type_vocab_size": 0}
BART_SIDE = {"layers": 2, "attention_heads": 2, "ffn_dim": 64}


@dataclass(frozen=True)
class Architecture:
    """Describes a published model, with the sizes of its layers reduced.

    Args:
        model_class: The class of transformers that its `config.json` names.
        config: What differs from the defaults of the class's configuration.
        vocabulary: A key of `TOKENIZERS`.
        extra: Shapes of tensors, by name, that the published files have and today's class does not.
        is_bare: Whether the names lack the prefix of the base model.
        names_class: Whether `config.json` names the class.
    """

    model_class: str
    config: dict[str, Any]
    vocabulary: str
    extra: dict[str, tuple[int, ...]] = field(default_factory=dict)
    is_bare: bool = False
    names_class: bool = True


MASKS, INVERSE = (1, 1, 1024, 1024), "self_attn.rotary_emb.inv_freq"
DECODER_BIAS = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
ARCHITECTURES = {
    "roberta-large": Architecture(
        "RobertaForMaskedLM", ENCODER | ROBERTA, "roberta", {"roberta.embeddings.position_ids": (1, 514), **POOLER}
    ),
    "roberta-large-mnli": Architecture(
        "RobertaForSequenceClassification", ENCODER | ROBERTA | {"id2label": NLI_LABELS}, "roberta", POOLER
    ),
    "deberta-v3": Architecture(
        "DebertaV2Model", ENCODER | DEBERTA, "deberta",
        {"mask_predictions.dense.weight": (32, 32), "lm_predictions.lm_head.dense.weight": (32, 32)}, names_class=False,
    ),
    "modernbert": Architecture("ModernBertForMaskedLM", ENCODER, "modernbert"),
    "t5-base": Architecture("T5ForConditionalGeneration", T5 | {"vocab_size": 32_128}, "t5", {DECODER_BIAS: (32, 4)}),
    "gpt2": Architecture(
        "GPT2LMHeadModel", GPT2, "gpt2", {f"h.{layer}.attn.bias": MASKS for layer in range(2)}, is_bare=True
    ),
    "dialogpt-medium": Architecture(
        "GPT2LMHeadModel", GPT2, "gpt2", {f"transformer.h.{layer}.attn.bias": MASKS for layer in range(2)}
    ),
    "bart-base": Architecture(  # the published config.json names the class without a head
        "BartModel",
        {"vocab_size": 50_265, "d_model": 32} | {f"{s}_{n}": v for s in SIDES for n, v in BART_SIDE.items()}, "roberta",
    ),
    "llama-2": Architecture(
        "LlamaForCausalLM", ENCODER | {"vocab_size": 32_000, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5},
        "llama", {f"model.layers.{layer}.{INVERSE}": (8,) for layer in range(2)},
    ),
}  # fmt: skip


def write_weights(folder: Path, name: str) -> None:
    """Writes `config.json`, random weights and the tokenizer of an architecture."""
    import torch
    import transformers
    from safetensors.torch import save_file

    architecture = ARCHITECTURES[name]
    folder.mkdir(parents=True)
    TOKENIZERS[architecture.vocabulary]().save_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    special = {key: getattr(tokenizer, key) for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    model_class = getattr(transformers, architecture.model_class)
    config = model_class.config_class(**special | architecture.config)
    torch.manual_seed(0)
    model = model_class(config)
    prefix = f"{model.base_model_prefix}." if architecture.is_bare else ""
    tied = set(model.all_tied_weights_keys)
    tensors = {key.removeprefix(prefix): value for key, value in model.state_dict().items() if key not in tied}
    tensors |= {key: torch.zeros(shape) for key, shape in architecture.extra.items()}
    tensors = {key: value.contiguous() for key, value in tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    # The sizes again: transformers leaves out what it takes for a setting of `generate`; published files have it.
    stored = config.to_dict() | architecture.config | {"architectures": [architecture.model_class]}
    if not architecture.names_class:
        del stored["architectures"]
    (folder / "config.json").write_text(json.dumps(stored, indent=1, default=str))


def corpus_texts(num_dialogues: int = 300) -> Iterator[str]:
    """Yields the texts of the embedded corpus that the vocabularies are learned from."""
    for number in range(num_dialogues):
        for exchange in exchanges("train", 0, number, 4):
            yield from exchange.sentences
            yield from (turn.text for turn in exchange.history)
            yield exchange.faithful.text


@cache
def bpe_pieces(is_byte_level: bool) -> tuple[list[str], list[tuple[str, str]]]:
    """Learns the pieces and merges of byte-level BPE (GPT-2's), or of BPE over marked words (Llama's)."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    bytes_of = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = bytes_of if is_byte_level else pre_tokenizers.Metaspace()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet()) if is_byte_level else []
    trainer = trainers.BpeTrainer(vocab_size=3000, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(corpus_texts(), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), [tuple(merge) for merge in model["merges"]]


@cache
def unigram_pieces() -> list[tuple[str, float]]:
    """Learns the pieces of a Unigram model with their scores."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=2000, unk_token="<unk>")
    tokenizer.train_from_iterator(corpus_texts(), trainer)
    pieces = json.loads(tokenizer.to_str())["model"]["vocab"]
    return [(piece, score) for piece, score in pieces if piece != "<unk>"]


def numbered(*tokens: str) -> dict[str, int]:
    return {token: number for number, token in enumerate(tokens)}


def scored(first: list[str], last: list[str]) -> list[tuple[str, float]]:
    return [(token, 0.0) for token in first] + unigram_pieces() + [(token, 0.0) for token in last]


def roberta_tokenizer() -> Any:
    from transformers import RobertaTokenizer

    pieces, merges = bpe_pieces(True)
    vocabulary = numbered("<s>", "<pad>", "</s>", "<unk>", *pieces, "<mask>")
    return RobertaTokenizer(vocab=vocabulary, merges=merges, model_max_length=512)


def gpt2_tokenizer() -> Any:
    """GPT-2's and DialoGPT's: no token for padding or beginning, one for the end."""
    from transformers import GPT2Tokenizer

    pieces, merges = bpe_pieces(True)
    return GPT2Tokenizer(vocab=numbered(*pieces, "<|endoftext|>"), merges=merges, model_max_length=1024)


def modernbert_tokenizer() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    pieces, merges = bpe_pieces(True)
    special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    vocabulary = numbered("|||IP_ADDRESS|||", "<|padding|>", *pieces, *special)
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
    )
    names = {f"{token.strip('[]').lower()}_token": token for token in special}
    inputs = ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_input_names=inputs, model_max_length=8192, **names)


def deberta_tokenizer() -> Any:
    from transformers import DebertaV2Tokenizer

    return DebertaV2Tokenizer(vocab=scored(["[PAD]", "[CLS]", "[SEP]", "[UNK]"], ["[MASK]"]), unk_id=3)


def t5_tokenizer() -> Any:
    from transformers import T5Tokenizer

    sentinels = [f"<extra_id_{number}>" for number in reversed(range(100))]
    return T5Tokenizer(vocab=scored(["<pad>", "</s>", "<unk>"], sentinels), model_max_length=512)


def llama_tokenizer() -> Any:
    """Llama 2's: bytes for what no piece has, and no token for padding."""
    from transformers import LlamaTokenizer

    pieces, merges = bpe_pieces(False)
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    return LlamaTokenizer(vocab=numbered("<unk>", "<s>", "</s>", *byte_tokens, *pieces), merges=merges)


TOKENIZERS: dict[str, Callable[[], Any]] = {
    "roberta": roberta_tokenizer,
    "gpt2": gpt2_tokenizer,
    "modernbert": modernbert_tokenizer,
    "deberta": deberta_tokenizer,
    "t5": t5_tokenizer,
    "llama": llama_tokenizer,
}
