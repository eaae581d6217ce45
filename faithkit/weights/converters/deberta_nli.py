"""A deberta-v3-xsmall that compares two texts: an int8 ONNX graph, to a DebertaV2ForSequenceClassification."""

from pathlib import Path
from typing import Any

from faithkit.weights.converters.flan_t5_small import weights
from faithkit.weights.converters.hf_folder import Tensors, write_config, write_tensors, write_tokenizer
from faithkit.weights.converters.onnx_reader import read_onnx

VERSION = 1

ROOT = "m."  # the exporter's name for the model
HEAD_SIZE = 64  # of an attention head, in all of deberta-v3
POSITION_BUCKETS = 256


def convert(source: Path, target: Path) -> None:
    """Write a DebertaV2ForSequenceClassification's folder."""
    tensors = rename(weights(*read_onnx(source / "policy_nli_int8.onnx")))
    write_tensors(target, tensors)
    _write_config(target, tensors)
    write_tokenizer(
        target,
        (source / "policy_nli_tokenizer" / "tokenizer.json").read_text(encoding="utf-8"),
        cls_token="[CLS]",
        sep_token="[SEP]",
        unk_token="[UNK]",
        pad_token="[PAD]",
        mask_token="[MASK]",
        model_max_length=512,
        model_input_names=["input_ids", "attention_mask"],
    )


def rename(tensors: Tensors) -> Tensors:
    """Gives the weights their names and shapes in transformers.

    The quantizer turns the head's two layers to (in, out) as it does with all others, but leaves them their names.
    """
    named = {name.removeprefix(ROOT): tensor for name, tensor in tensors.items()}
    return named | {name: named[name].T for name in ("pooler.dense.weight", "classifier.weight")}


def _write_config(target: Path, tensors: Tensors) -> None:
    from transformers import DebertaV2Config

    vocab_size, hidden_size = tensors["deberta.embeddings.word_embeddings.weight"].shape
    layers = {name.split(".")[3] for name in tensors if name.startswith("deberta.encoder.layer.")}
    values: dict[str, Any] = {
        "vocab_size": vocab_size,
        "hidden_size": hidden_size,
        "num_hidden_layers": len(layers),
        "num_attention_heads": hidden_size // HEAD_SIZE,
        "intermediate_size": tensors["deberta.encoder.layer.0.intermediate.dense.weight"].shape[0],
        "relative_attention": True,
        "position_buckets": POSITION_BUCKETS,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
        "type_vocab_size": 0,
        "pooler_hidden_size": hidden_size,
        "num_labels": tensors["classifier.bias"].shape[0],
    }
    config = DebertaV2Config(**values)  # its signature lacks some that it takes
    write_config(target, config, "DebertaV2ForSequenceClassification")
