"""Random weights of the published architectures: folders as the hub has them, made here.

`config.json` says what the published one says, its class among it, and the weights have also those tensors that the
published files have and today's classes do not.
"""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faithkit.files.cache import cache_entry
from tests.paper_smoke.vocabularies import write_vocabulary

VERSION = 2  # raised when the same architecture gives another folder


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A published model.

    Args:
        model_class: The class of transformers that its files belong to.
        config: What differs from the defaults of the class's configuration.
        vocabulary: A key of `vocabularies.VOCABULARIES`.
        small: Sizes of a model of the same kind for tests of this program.
        extra: Shapes of tensors that the published files have beside those of the class, by name.
        bare: The names have no prefix of the base model, as those of files from before there were heads.
        names_class: Whether `config.json` names the class.
        bf16: The published weights are in half precision.
    """

    model_class: str
    config: dict[str, Any]
    vocabulary: str
    small: dict[str, Any]
    extra: dict[str, tuple[int, ...]] = field(default_factory=dict)
    bare: bool = False
    names_class: bool = True
    bf16: bool = False


ENCODER = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
ROBERTA_LARGE = {
    "vocab_size": 50_265,
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
}
NLI_LABELS = ("CONTRADICTION", "NEUTRAL", "ENTAILMENT")
DEBERTA = {
    "vocab_size": 128_100,
    "max_position_embeddings": 512,
    "relative_attention": True,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "layer_norm_eps": 1e-7,
    "max_relative_positions": -1,
    "position_biased_input": False,
    "type_vocab_size": 0,
}
T5_BASE = {
    "vocab_size": 32_128,
    "d_model": 768,
    "d_kv": 64,
    "d_ff": 3072,
    "num_layers": 12,
    "num_heads": 12,
    "decoder_start_token_id": 0,
}
T5_SMALL = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
T5_EXTRA = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
LLAMA = {"vocab_size": 32_000, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5}
GPT2_SMALL = {"n_embd": 32, "n_layer": 2, "n_head": 2}

ARCHITECTURES = {
    "roberta-large": Architecture(
        model_class="RobertaForMaskedLM",
        config=ROBERTA_LARGE,
        vocabulary="roberta",
        small=ENCODER,
        extra={
            "roberta.embeddings.position_ids": (1, 514),
            "roberta.pooler.dense.weight": (1024, 1024),
            "roberta.pooler.dense.bias": (1024,),
        },
    ),
    "roberta-large-mnli": Architecture(
        model_class="RobertaForSequenceClassification",
        config=ROBERTA_LARGE | {"id2label": dict(enumerate(NLI_LABELS))},
        vocabulary="roberta",
        small=ENCODER,
        extra={"roberta.pooler.dense.weight": (1024, 1024), "roberta.pooler.dense.bias": (1024,)},
    ),
    "deberta-v3-base": Architecture(
        model_class="DebertaV2Model",
        config=DEBERTA
        | {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
        vocabulary="deberta",
        small=ENCODER,
        extra={"mask_predictions.dense.weight": (768, 768), "lm_predictions.lm_head.dense.weight": (768, 768)},
        names_class=False,
    ),
    "deberta-v3-large": Architecture(
        model_class="DebertaV2Model",
        config=DEBERTA
        | {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
        vocabulary="deberta",
        small=ENCODER,
        extra={"mask_predictions.dense.weight": (1024, 1024), "lm_predictions.lm_head.dense.weight": (1024, 1024)},
        names_class=False,
    ),
    "modernbert-base": Architecture(
        model_class="ModernBertForMaskedLM", config={}, vocabulary="modernbert", small=ENCODER
    ),
    "modernbert-large": Architecture(
        model_class="ModernBertForMaskedLM",
        config={"hidden_size": 1024, "intermediate_size": 2624, "num_hidden_layers": 28, "num_attention_heads": 16},
        vocabulary="modernbert",
        small=ENCODER,
    ),
    "t5-base": Architecture(
        model_class="T5ForConditionalGeneration",
        config=T5_BASE,
        vocabulary="t5",
        small=T5_SMALL,
        extra={T5_EXTRA: (32, 12)},
    ),
    "question-generation": Architecture(  # mrm8488/t5-base-finetuned-question-generation-ap
        model_class="T5ForConditionalGeneration", config=T5_BASE, vocabulary="t5", small=T5_SMALL
    ),
    "question-answering": Architecture(  # ktrapeznikov/albert-xlarge-v2-squad-v2
        model_class="AlbertForQuestionAnswering",
        config={
            "vocab_size": 30_000,
            "embedding_size": 128,
            "hidden_size": 2048,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 8192,
            "num_hidden_groups": 1,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
        },
        vocabulary="albert",
        small=ENCODER | {"embedding_size": 16},
        extra={"albert.pooler.weight": (2048, 2048), "albert.pooler.bias": (2048,)},
    ),
    "gpt2": Architecture(
        model_class="GPT2LMHeadModel",
        config={},
        vocabulary="gpt2",
        small=GPT2_SMALL,
        extra={f"h.{layer}.attn.bias": (1, 1, 1024, 1024) for layer in range(12)},
        bare=True,
    ),
    "dialogpt-medium": Architecture(
        model_class="GPT2LMHeadModel",
        config={"n_embd": 1024, "n_layer": 24, "n_head": 16},
        vocabulary="gpt2",
        small=GPT2_SMALL,
        extra={f"transformer.h.{layer}.attn.bias": (1, 1, 1024, 1024) for layer in range(24)},
    ),
    "bart-base": Architecture(
        model_class="BartModel",  # that of the published config.json, though it writes
        config={
            "vocab_size": 50_265,
            "d_model": 768,
            **{f"{side}_layers": 6 for side in ("encoder", "decoder")},
            **{f"{side}_attention_heads": 12 for side in ("encoder", "decoder")},
            **{f"{side}_ffn_dim": 3072 for side in ("encoder", "decoder")},
            "attention_dropout": 0.1,
            "activation_dropout": 0.1,
        },
        vocabulary="roberta",
        small={
            "d_model": 32,
            **{f"{side}_layers": 2 for side in ("encoder", "decoder")},
            **{f"{side}_attention_heads": 2 for side in ("encoder", "decoder")},
            **{f"{side}_ffn_dim": 64 for side in ("encoder", "decoder")},
        },
    ),
    "llama-2-7b": Architecture(  # with 2 of its 32 layers
        model_class="LlamaForCausalLM",
        config=LLAMA
        | {"hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 2, "num_attention_heads": 32},
        vocabulary="llama",
        small=ENCODER,
        extra={f"model.layers.{layer}.self_attn.rotary_emb.inv_freq": (64,) for layer in range(2)},
        bf16=True,
    ),
    "llama-2-13b": Architecture(  # with 2 of its 40 layers
        model_class="LlamaForCausalLM",
        config=LLAMA
        | {"hidden_size": 5120, "intermediate_size": 13_824, "num_hidden_layers": 2, "num_attention_heads": 40},
        vocabulary="llama",
        small=ENCODER,
        bf16=True,
    ),
}


def make_weights(folder: Path, *, small: bool = False) -> None:
    """Makes the folder of an architecture's random weights, named as it is, where it is not there yet.

    Args:
        small: A model of few dimensions in the place of the true one; its vocabulary stays.
    """
    cache_entry(folder, lambda place: write_weights(place, folder.name, small=small), lambda place: place)


def write_weights(folder: Path, name: str, *, small: bool = False) -> None:
    """Writes `config.json`, random weights and the tokenizer."""
    import torch
    import transformers
    from safetensors.torch import save_file

    architecture = ARCHITECTURES[name]
    folder.mkdir(parents=True, exist_ok=True)
    write_vocabulary(folder, architecture.vocabulary)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    known = {side: getattr(tokenizer, side) for side in ("bos_token_id", "eos_token_id", "pad_token_id")}
    model_class = getattr(transformers, architecture.model_class)
    sizes = {**architecture.config, **(architecture.small if small else {})}
    config = model_class.config_class(**{**known, **sizes})
    torch.manual_seed(0)
    model = model_class(config)
    prefix = f"{model.base_model_prefix}." if architecture.bare else ""
    tied = set(model.all_tied_weights_keys)  # by this configuration; the class only names what may be tied
    kept = {key.removeprefix(prefix): value for key, value in model.state_dict().items() if key not in tied}
    extra = {key: shape for key, shape in architecture.extra.items() if not small}
    kept |= {key: torch.zeros(shape) for key, shape in extra.items()}
    dtype = torch.bfloat16 if architecture.bf16 else torch.float32
    kept = {key: value.to(dtype).contiguous() if value.is_floating_point() else value for key, value in kept.items()}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    # The sizes once more: transformers leaves out what it takes for a setting of `generate`; published files have it.
    stored = config.to_dict() | sizes | {"architectures": [architecture.model_class]}
    if not architecture.names_class:
        del stored["architectures"]
    (folder / "config.json").write_text(json.dumps(stored, indent=1, default=str))


def num_parameters(name: str, **changed: Any) -> int:
    """Counts the parameters of an architecture, tied ones once, without making them.

    Args:
        changed: Values of the configuration that take the place of its own.
    """
    import torch
    import transformers

    architecture = ARCHITECTURES[name]
    model_class = getattr(transformers, architecture.model_class)
    with torch.device("meta"), torch.random.fork_rng(devices=[]):
        model = model_class(model_class.config_class(**{**architecture.config, **changed}))
    return sum(math.prod(parameter.shape) for parameter in model.parameters())
