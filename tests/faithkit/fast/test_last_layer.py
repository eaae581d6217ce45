"""A last layer without what nobody reads: the scores of the whole one, under the same names of weights."""

from copy import deepcopy

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from faithkit.fast.model_layers import first_token_only, without_last_layer
from faithkit.fast.packing import allow_packed_attention, first_position, pack_rows

SIZES = {
    **{"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2},
    **{"intermediate_size": 24, "max_position_embeddings": 40, "pad_token_id": 1},
}
WITH_BERTS_LAYERS = ["Bert", "Roberta", "XLMRoberta", "Camembert"]


def classifier(name: str, **options: object) -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**SIZES, **options)
    model = getattr(transformers, f"{name}ForSequenceClassification")(config).eval()
    # Initial weights are so small that a wrong layer would change the output too little.
    for weights in model.parameters():
        torch.nn.init.normal_(weights, std=0.3)
    return model


@pytest.fixture(scope="module", params=WITH_BERTS_LAYERS)
def pair(request: pytest.FixtureRequest) -> tuple[transformers.PreTrainedModel, transformers.PreTrainedModel]:
    whole = classifier(request.param)
    return whole, first_token_only(deepcopy(whole))


@settings(max_examples=20)
@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=5), masked=st.booleans())
def test_logits_are_those_of_the_whole_layer(
    pair: tuple[transformers.PreTrainedModel, transformers.PreTrainedModel], lengths: list[int], masked: bool
) -> None:
    whole, short = pair
    ids = torch.randint(2, 50, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(len(lengths)))
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    inputs = {"input_ids": torch.where(mask == 1, ids, 1), "attention_mask": mask} if masked else {"input_ids": ids}
    with torch.inference_mode():
        assert torch.allclose(short(**inputs).logits, whole(**inputs).logits, rtol=1e-5, atol=1e-6)


def test_the_states_below_the_last_layer_are_read_without_it(
    pair: tuple[transformers.PreTrainedModel, transformers.PreTrainedModel],
) -> None:
    inputs = {"input_ids": torch.arange(2, 14).view(2, 6)}
    with torch.inference_mode():
        expected = pair[0].base_model(**inputs, output_hidden_states=True).hidden_states[-2]
        for model in pair:
            assert torch.equal(without_last_layer(model)(**inputs).last_hidden_state, expected)
            assert len(model.base_model.encoder.layer) == 3


@pytest.mark.parametrize("name", WITH_BERTS_LAYERS)
def test_packed_rows_have_the_logits_and_gradients_of_padded_ones(name: str) -> None:
    whole = classifier(name)
    packed = first_token_only(deepcopy(whole))
    assert allow_packed_attention(packed)
    mask = torch.arange(12) < torch.tensor([12, 3, 7])[:, None]
    ids = torch.randint(2, 50, (3, 12), generator=torch.Generator().manual_seed(1)).masked_fill(~mask, 1)
    inputs = {"input_ids": ids, "attention_mask": mask.long()}
    whole(**inputs).logits.pow(3).sum().backward()
    logits = packed(**pack_rows(inputs, first_position(packed))).logits
    assert torch.allclose(logits, whole(**inputs).logits, rtol=1e-5, atol=1e-5)
    logits.pow(3).sum().backward()
    for (label, found), expected in zip(packed.named_parameters(), whole.parameters(), strict=True):
        if expected.grad is not None:
            assert torch.allclose(found.grad, expected.grad, rtol=1e-4, atol=1e-6), label
