"""granite-bart: a small BART made from the layers of granite's RoBERTa, since the package index has no BART.

The encoder is RoBERTa's, whose layers are the same as BART's. The decoder is every second one of them; its
cross-attention begins as the layer's attention to itself, and it has never written a word: it must be trained.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from faithkit.weights.converters import granite_roberta
from faithkit.weights.converters.hf_folder import Tensors, write_config, write_tensors

VERSION = 2

DECODER_EVERY = 2  # layers of the encoder for one of the decoder
LAYER = {  # RoBERTa's names to BART's
    "attention.self.query": "self_attn.q_proj",
    "attention.self.key": "self_attn.k_proj",
    "attention.self.value": "self_attn.v_proj",
    "attention.output.dense": "self_attn.out_proj",
    "attention.output.LayerNorm": "self_attn_layer_norm",
    "intermediate.dense": "fc1",
    "output.dense": "fc2",
    "output.LayerNorm": "final_layer_norm",
}


def convert(source: Path, target: Path) -> None:
    """Write a BartForConditionalGeneration's folder."""
    from safetensors.numpy import load_file
    from transformers import AutoTokenizer, BartConfig, RobertaConfig

    with tempfile.TemporaryDirectory() as folder:
        granite_roberta.convert(source, Path(folder))
        roberta: Any = RobertaConfig.from_pretrained(folder)
        tensors = load_file(Path(folder) / "model.safetensors")
        AutoTokenizer.from_pretrained(folder).save_pretrained(target)
    num_layers = roberta.num_hidden_layers
    chosen = list(range(DECODER_EVERY - 1, num_layers, DECODER_EVERY))
    write_tensors(target, rename(tensors, num_layers, chosen))
    offset = roberta.pad_token_id + 1  # of the positions, in both
    config = BartConfig(
        vocab_size=roberta.vocab_size,
        d_model=roberta.hidden_size,
        max_position_embeddings=roberta.max_position_embeddings - offset,
        encoder_layers=num_layers,
        encoder_attention_heads=roberta.num_attention_heads,
        encoder_ffn_dim=roberta.intermediate_size,
        decoder_layers=len(chosen),
        decoder_attention_heads=roberta.num_attention_heads,
        decoder_ffn_dim=roberta.intermediate_size,
        bos_token_id=roberta.bos_token_id,
        eos_token_id=roberta.eos_token_id,
        pad_token_id=roberta.pad_token_id,
        decoder_start_token_id=roberta.eos_token_id,
        forced_eos_token_id=None,
    )
    write_config(target, config, "BartForConditionalGeneration")


def rename(tensors: Tensors, num_layers: int, chosen: Sequence[int]) -> Tensors:
    """Makes BART's tensors from RobertaModel's.

    The last norm of the decoder is scaled down: RoBERTa's states were never compared with its words, and their products
    are so large that a first loss would be five times that of chance.

    Args:
        chosen: The layers that the decoder is made of.
    """
    positions = tensors["embeddings.position_embeddings.weight"] + tensors["embeddings.token_type_embeddings.weight"][0]
    renamed: Tensors = {"model.shared.weight": tensors["embeddings.word_embeddings.weight"]}
    for side, layers in (("encoder", list(range(num_layers))), ("decoder", list(chosen))):
        renamed[f"model.{side}.embed_positions.weight"] = positions
        for parameter in ("weight", "bias"):
            norm = tensors[f"embeddings.LayerNorm.{parameter}"]
            renamed[f"model.{side}.layernorm_embedding.{parameter}"] = norm
            for number, layer in enumerate(layers):
                for theirs, ours in LAYER.items():
                    tensor = tensors[f"encoder.layer.{layer}.{theirs}.{parameter}"]
                    renamed[f"model.{side}.layers.{number}.{ours}.{parameter}"] = tensor
                    if side == "decoder" and ours.startswith("self_attn"):
                        cross = ours.replace("self_attn", "encoder_attn")
                        renamed[f"model.decoder.layers.{number}.{cross}.{parameter}"] = tensor
    last = f"model.decoder.layers.{len(chosen) - 1}.final_layer_norm"
    words = np.linalg.norm(renamed["model.shared.weight"], axis=1).mean()
    scale = 1 / (words * np.abs(renamed[f"{last}.weight"]).mean())  # logits deviate by about 1
    for parameter in ("weight", "bias"):
        renamed[f"{last}.{parameter}"] = (renamed[f"{last}.{parameter}"] * scale).astype(np.float32)
    return renamed
