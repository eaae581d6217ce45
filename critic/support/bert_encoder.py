"""Computes the states of tokens with a BERT encoder, without transformers, whose import takes two seconds.

The encoder of the detector `default` is always minilm, so one architecture is enough. Sequences are not padded: they
stand one behind the other, and only attention goes through them one by one.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional

from faithkit.errors import UserError
from faithkit.fast import missing_rows
from faithkit.files.jsonl import read_strict_json

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
FIRST, LAST = "[CLS]", "[SEP]"  # tokens around a text
EXPECTED = {"model_type": "bert", "hidden_act": "gelu"}
HINT = "copy or download the folder again"


class BertEncoder(nn.Module):
    """The layers of BERT up to the second-to-last, whose states are compared.

    Args:
        config: The values of config.json.
    """

    def __init__(self, config: Mapping[str, Any]):
        super().__init__()
        hidden, epsilon = config["hidden_size"], config["layer_norm_eps"]
        self.max_length = int(config["max_position_embeddings"])
        # nn.Embedding on the meta device would import torch's compiler.
        sizes = {"words": config["vocab_size"], "positions": self.max_length, "types": config["type_vocab_size"]}
        self.embeddings = nn.ParameterDict({name: torch.empty(size, hidden) for name, size in sizes.items()})
        self.norm = nn.LayerNorm(hidden, eps=epsilon)
        layer = hidden, config["intermediate_size"], config["num_attention_heads"], epsilon
        self.layers = nn.ModuleList(_Layer(*layer) for _ in range(config["num_hidden_layers"] - 1))
        self.hidden_size = int(hidden)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.norm.weight.device

    @torch.inference_mode()
    def encode(self, sequences: Sequence[Sequence[int]]) -> list[Tensor]:
        """Encodes sequences of token ids, each of at least one: states [tokens, hidden] of each sequence."""
        filling = missing_rows(self, sum(map(len, sequences)))  # a sequence without meaning
        sequences = [*sequences, [0] * filling] if filling else sequences
        lengths = [len(ids) for ids in sequences]
        ids = torch.tensor([number for ids in sequences for number in ids], device=self.device)
        places = torch.cat([torch.arange(length) for length in lengths]).to(self.device)
        words, positions, types = (self.embeddings[name] for name in EMBEDDINGS)
        states = self.norm(words[ids] + types[0] + positions[places])[None]  # [1, tokens of all sequences, hidden]
        for layer in self.layers:
            states = layer(states, lengths)
        return list(states[0].float().split(lengths))[: len(lengths) - bool(filling)]


class _Layer(nn.Module):
    def __init__(self, hidden: int, inner: int, heads: int, epsilon: float):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(hidden, hidden) for _ in range(3))
        self.attended, self.attended_norm = nn.Linear(hidden, hidden), nn.LayerNorm(hidden, eps=epsilon)
        self.inner, self.outer = nn.Linear(hidden, inner), nn.Linear(inner, hidden)
        self.outer_norm = nn.LayerNorm(hidden, eps=epsilon)

    def forward(self, states: Tensor, lengths: Sequence[int]) -> Tensor:
        projected = [layer(states).unflatten(-1, (self.heads, -1)) for layer in (self.query, self.key, self.value)]
        parts = zip(*(values.transpose(1, 2).split(lengths, dim=2) for values in projected), strict=True)
        mixed = torch.cat([functional.scaled_dot_product_attention(*part) for part in parts], dim=2)
        states = self.attended_norm(self.attended(mixed.transpose(1, 2).flatten(2)) + states)
        return self.outer_norm(self.outer(functional.gelu(self.inner(states))) + states)


# Names in the files of BertModel
EMBEDDINGS = {"words": "word_embeddings", "positions": "position_embeddings", "types": "token_type_embeddings"}
LAYER = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "attended": "attention.output.dense",
    "attended_norm": "attention.output.LayerNorm",
    "inner": "intermediate.dense",
    "outer": "output.dense",
    "outer_norm": "output.LayerNorm",
}


def load_bert(folder: Path) -> tuple[BertEncoder, Tokenizer]:
    """Loads the encoder and its tokenizer from a folder as `BertModel.save_pretrained` writes it.

    Raises:
        UserError: It is another model, or a tensor is missing or has another shape.
    """
    config = read_strict_json(folder / CONFIG, hint=HINT)
    if wrong := [name for name, value in EXPECTED.items() if config.get(name) != value]:
        problem = f"the detector needs a BERT encoder, and {wrong[0]} is {config.get(wrong[0])!r}"
        raise UserError(problem, place=str(folder), hint="use minilm")
    with torch.device("meta"):
        model = BertEncoder(config)
    tensors = {name.removeprefix("bert."): tensor for name, tensor in load_file(folder / WEIGHTS).items()}
    state = {name: tensors.get(_stored_name(name)) for name in model.state_dict()}
    expected = {name: tensor.shape for name, tensor in model.state_dict().items()}
    if wrong := [name for name, tensor in state.items() if tensor is None or tensor.shape != expected[name]]:
        problem = f"the weights have no {_stored_name(wrong[0])} of shape {tuple(expected[wrong[0]])}"
        raise UserError(problem, place=str(folder), hint=HINT)
    model.load_state_dict(state, assign=True)
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
    if not {FIRST, LAST} <= tokenizer.get_vocab().keys():
        raise UserError(f"the tokenizer has no {FIRST} or no {LAST}", place=str(folder), hint=HINT)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return model.float().eval().requires_grad_(False), tokenizer


def _stored_name(name: str) -> str:
    first, part, *rest = name.split(".")
    if first == "layers":
        return f"encoder.layer.{part}.{LAYER[rest[0]]}.{rest[1]}"
    return f"embeddings.LayerNorm.{part}" if first == "norm" else f"embeddings.{EMBEDDINGS[part]}.weight"
