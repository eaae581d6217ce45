"""How much an encoder reads at once."""

from types import SimpleNamespace

import pytest
import torch
from transformers import BertConfig, BertModel, RobertaConfig, RobertaModel

from faithkit.metrics.responses.pretrained import longest_input

SIZE = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8, "vocab_size": 9}
MODELS = {
    "bert": lambda: BertModel(BertConfig(**SIZE, max_position_embeddings=20)),
    # Its positions begin behind that of padding, 1: two of 22 are never used.
    "roberta": lambda: RobertaModel(RobertaConfig(**SIZE, max_position_embeddings=22, pad_token_id=1)),
}


@pytest.mark.parametrize("family", MODELS)
def test_the_longest_input_is_read_and_one_token_more_is_not(family: str) -> None:
    model, tokenizer = MODELS[family]().eval(), SimpleNamespace(model_max_length=10**30)
    longest = longest_input(model, tokenizer)
    assert longest == 20
    assert model(input_ids=torch.full((1, longest), 5)).last_hidden_state.shape[1] == longest
    with pytest.raises((IndexError, RuntimeError)):
        model(input_ids=torch.full((1, longest + 1), 5))
    assert longest_input(model, SimpleNamespace(model_max_length=7)) == 7, "what the tokenizer allows"
