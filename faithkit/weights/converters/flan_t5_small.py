"""flan-t5-small, tuned to write titles: two int8 ONNX graphs, to a T5ForConditionalGeneration."""

from pathlib import Path

import numpy as np

from faithkit.weights.converters.hf_folder import Tensors, write_config, write_tensors, write_tokenizer
from faithkit.weights.converters.onnx_reader import Node, dequantized, read_onnx

VERSION = 1

ENCODER, DECODER = "enc.", "m."  # the exporter's names for the two halves
NUM_LAYERS = 8


def convert(source: Path, target: Path) -> None:
    """Write a T5ForConditionalGeneration's folder."""
    encoder = weights(*read_onnx(source / "encoder.onnx"))
    decoder = weights(*read_onnx(source / "decoder.onnx"))
    assert np.array_equal(encoder.pop("enc.embed_tokens.weight"), decoder["m.shared.weight"])  # one embedding
    tensors = {f"encoder.{name.removeprefix(ENCODER)}": tensor for name, tensor in encoder.items()}
    tensors |= {name.removeprefix(DECODER): tensor for name, tensor in decoder.items()}
    write_tensors(target, tensors)
    _write_configs(target, tensors)
    write_tokenizer(
        target,
        (source / "tokenizer.json").read_text(encoding="utf-8"),
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        extra_special_tokens=[f"<extra_id_{i}>" for i in range(100)],
        model_max_length=512,
        model_input_names=["input_ids", "attention_mask"],
    )


def weights(stored: Tensors, nodes: list[Node]) -> Tensors:
    """Reads one graph's weights by the names they had in PyTorch.

    The exporter keeps the names of embeddings and norms, but turns each linear layer into a nameless matrix
    of shape (in, out); the name is that of the node which reads it, as in
    `/m/decoder/block.0/layer.0/SelfAttention/q/MatMul_quant`.
    """
    plain = dequantized(stored)
    named = {name: tensor for name, tensor in plain.items() if not name.startswith("onnx::")}
    for node in nodes:
        module, _, operation = node.name.rpartition("/")
        if operation != "MatMul_quant":
            continue
        for name in node.inputs:
            base = name.removesuffix("_quantized")
            if name != base and base in plain:
                named[module.strip("/").replace("/", ".") + ".weight"] = plain[base].T
    return named


def _write_configs(target: Path, tensors: Tensors) -> None:
    from transformers import GenerationConfig, T5Config

    first = "encoder.block.0.layer"
    vocab_size, d_model = tensors["shared.weight"].shape
    num_buckets, num_heads = tensors[f"{first}.0.SelfAttention.relative_attention_bias.weight"].shape
    config = T5Config(
        vocab_size=vocab_size,
        d_model=d_model,
        d_kv=tensors[f"{first}.0.SelfAttention.q.weight"].shape[0] // num_heads,
        d_ff=tensors[f"{first}.1.DenseReluDense.wi_0.weight"].shape[0],
        num_layers=NUM_LAYERS,
        num_decoder_layers=NUM_LAYERS,
        num_heads=num_heads,
        relative_attention_num_buckets=num_buckets,
        feed_forward_proj="gated-gelu",
    )
    config.decoder_start_token_id = 0
    # T5Config ties and scales whatever it is given, and the output would be garbage: both are set after it is built.
    config.tie_word_embeddings = False
    config.scale_decoder_outputs = False
    write_config(target, config, "T5ForConditionalGeneration")
    GenerationConfig(decoder_start_token_id=0, eos_token_id=1, pad_token_id=0).save_pretrained(target)
