"""DoHA is BART with two views: what it attends to, where it begins, and that it writes the same however it is run."""

import copy
import json
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from data_modules.encoding.sequence_layout import SEQ2SEQ, TurnLayout, add_markers
from data_modules.encoding.tokens import load_tokenizer
from data_modules.encoding.turn_encoder import TurnEncoder
from faithkit.errors import UserError
from faithkit.files.model_folder import read_sidecar
from faithkit.inference.text import Decoding, Prompt
from faithkit.inference.transformers_engine import TransformersEngine
from faithkit.records import Turn
from generation import Generator
from generation.doha import join_views, split_views, without_knowledge
from generation.export import export
from generation.weights import load_generator
from tests.data_modules.examples import example
from tests.running import SMALL_GENERATOR, train_here
from tests.tiny import write_language_model

KNOWLEDGE, SEEKER, WIZARD, PAD, EOS = 10, 11, 12, 1, 2
SAID = [[("seeker", "is the river long"), ("wizard", "yes"), ("seeker", "how")]]
SAID += [[("seeker", "who was the king of the old city")], []]
TEXTS = [("the river is long and old", "it is long"), ("he was born in the city", "a great king i think")]
ROWS = [
    example(knowledge=known, history=tuple(Turn(speaker=who, text=text) for who, text in said), response=response)
    for said, (known, response) in zip(SAID, [*TEXTS, ("music", "music plays")], strict=True)
]


def loaded(folder: Path, architecture: str = "doha") -> tuple[Any, TurnEncoder]:
    layout = TurnLayout(kind=SEQ2SEQ, max_length=96, max_response_length=24)
    tokenizer = load_tokenizer(str(folder))
    new = add_markers(tokenizer, layout)
    model = load_generator(str(folder), architecture, tokenizer=tokenizer, new_tokens=new)
    return model.eval(), TurnEncoder(tokenizer, layout)


@pytest.fixture(scope="module")
def doha(language_models: dict[str, Path]) -> tuple[Any, TurnEncoder]:
    """A tiny DoHA whose two cross-attentions are no longer the same."""
    model, encoder = loaded(language_models["bart"])
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "attn" in name or "norm" in name:
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model, encoder


def batch_of(encoder: TurnEncoder, rows: list = ROWS) -> dict[str, Tensor]:
    columns: Any = encoder.encode(rows, Counter())
    return {name: torch.from_numpy(column) for name, column in encoder.collate(columns).items()}


def logits_of(model: Any, batch: dict[str, Tensor]) -> Tensor:
    names = ("input_ids", "attention_mask", "decoder_input_ids")
    with torch.inference_mode():
        return model(**{name: batch[name] for name in names}, use_cache=False).logits


TEXT = st.lists(st.integers(20, 29), max_size=5)
TURN = st.tuples(st.sampled_from([SEEKER, WIZARD]), TEXT).map(lambda turn: [turn[0], *turn[1]])
PARTS = st.tuples(TEXT, TEXT, st.lists(TURN, max_size=3))


@given(st.lists(PARTS, min_size=1, max_size=4))
def test_the_second_view_is_the_row_without_its_knowledge(
    rows: list[tuple[list[int], list[int], list[list[int]]]],
) -> None:
    history = [[*front, *chain(*turns), EOS] for front, _, turns in rows]
    whole = [[*front, KNOWLEDGE, *known, *chain(*turns), EOS] for front, known, turns in rows]
    width = max(map(len, whole))
    ids = torch.tensor([row + [PAD] * (width - len(row)) for row in whole])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in whole])
    found, there = without_knowledge(ids, mask, knowledge_id=KNOWLEDGE, speaker_ids=[SEEKER, WIZARD])
    assert [row[kept].tolist() for row, kept in zip(found, there, strict=True)] == history
    assert found.shape[1] == max(map(len, history)) and (there.sum(1) == torch.tensor(list(map(len, history)))).all()
    first, second, real = split_views(join_views(torch.rand(*ids.shape, 6), torch.rand(*found.shape, 6), there))
    assert first.shape == second.shape == (*ids.shape, 6)
    assert real[:, : there.shape[1]].equal(there) and not real[:, there.shape[1] :].any()


def test_plain_bart_weights_load_and_the_second_attention_begins_as_the_first(language_models: dict[str, Path]) -> None:
    model, _ = loaded(language_models["bart"])
    bart, _ = loaded(language_models["bart"], "seq2seq")
    ours = model.state_dict()
    assert all(torch.equal(ours[name], value) for name, value in bart.state_dict().items())
    further = {name for name in ours if name not in bart.state_dict()}
    assert further and all(torch.equal(ours[n], ours[n.replace("knowledge", "encoder")]) for n in further)
    assert model.lm_head.weight is model.model.shared.weight is model.model.encoder.embed_tokens.weight


def attend(attention: Any, states: Tensor, seen: Tensor, causal: bool = False) -> Tensor:
    """Attention of one row without a batch, a mask or a cache [tokens, size]."""
    heads, size = attention.num_heads, attention.head_dim
    query, key, value = (
        project(x).view(len(x), heads, size).transpose(0, 1)
        for project, x in ((attention.q_proj, states), (attention.k_proj, seen), (attention.v_proj, seen))
    )
    scores = query @ key.transpose(1, 2) / size**0.5
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[1:]).triu(1).bool(), -torch.inf)
    return attention.out_proj((scores.softmax(-1) @ value).transpose(0, 1).reshape(len(states), -1))


def read_naively(part: Any, ids: Tensor) -> Tensor:
    places = part.embed_positions.weight[torch.arange(len(ids)) + part.embed_positions.offset]
    return part.layernorm_embedding(part.embed_tokens(ids) + places)


def encode_naively(encoder: Any, ids: Tensor) -> Tensor:
    states = read_naively(encoder, ids)
    for layer in encoder.layers:
        states = layer.self_attn_layer_norm(states + attend(layer.self_attn, states, states))
        states = layer.final_layer_norm(states + layer.fc2(layer.activation_fn(layer.fc1(states))))
    return states


def test_the_forward_pass_is_what_the_paper_describes(doha: tuple[Any, TurnEncoder]) -> None:
    given, encoder = doha
    model = copy.deepcopy(given).double()  # so that only another definition could differ by as much
    batch = batch_of(encoder)
    found = logits_of(model, batch)
    marker, speakers = model.config.knowledge_token_id, model.config.speaker_token_ids
    for row, one in enumerate(ROWS):
        ids = batch["input_ids"][row][batch["attention_mask"][row].bool()]
        begin = ids.tolist().index(marker)
        end = next((p for p, token in enumerate(ids.tolist()) if token in speakers), len(ids) - 1)
        with torch.inference_mode():
            whole = encode_naively(model.model.encoder, ids)
            history = encode_naively(model.model.encoder, torch.cat([ids[:begin], ids[end:]]))
            said = encoder.tokenizer(one.response, add_special_tokens=False)["input_ids"]
            states = read_naively(model.model.decoder, torch.tensor([*encoder.decoder_prefix, *said]))
            for layer in model.model.decoder.layers:
                states = layer.self_attn_layer_norm(states + attend(layer.self_attn, states, states, causal=True))
                states = layer.encoder_attn_layer_norm(states + attend(layer.encoder_attn, states, history))
                states = layer.knowledge_attn_layer_norm(states + attend(layer.knowledge_attn, states, whole))
                states = layer.final_layer_norm(states + layer.fc2(layer.activation_fn(layer.fc1(states))))
            torch.testing.assert_close(found[row, : len(states)], model.lm_head(states), atol=1e-10, rtol=1e-10)


def test_it_reloads_as_it_was_saved_and_says_what_it_is(
    doha: tuple[Any, TurnEncoder], language_models: dict[str, Path], tmp_path: Path
) -> None:
    model, encoder = doha
    model.save_pretrained(tmp_path)
    encoder.tokenizer.save_pretrained(tmp_path)
    again, other = loaded(tmp_path)
    batch = batch_of(encoder)
    assert torch.equal(logits_of(again, batch), logits_of(model, batch))
    assert other.fingerprint() == encoder.fingerprint()
    with pytest.raises(UserError, match=r"is not a seq2seq model(.|\n)*model=doha"):
        loaded(tmp_path, "seq2seq")
    with pytest.raises(UserError, match=r"is not a doha model(.|\n)*model=t5"):
        loaded(language_models["t5"])


DECODINGS = {
    "greedy": Decoding(max_new_tokens=12),
    "nucleus": Decoding(strategy="nucleus", top_p=0.95, max_new_tokens=12, num_samples=2),
    "beam": Decoding(strategy="beam", num_beams=3, max_new_tokens=6),
}


def answers(model: Any, encoder: TurnEncoder, decoding: Decoding, batch_size: int) -> dict[tuple[str, int], Any]:
    tokenizer = encoder.tokenizer
    tokens = {"eos_id": tokenizer.eos_token_id, "pad_id": tokenizer.pad_token_id}
    engine = TransformersEngine(model, **tokens, decoder_prefix=encoder.decoder_prefix, batch_size=batch_size)
    engine.reader.pass_tokens = 24  # prompts of other lengths are read apart
    contexts = encoder.contexts(ROWS, Counter())
    said = engine.generate([Prompt(row.id, contexts.row(place)) for place, row in enumerate(ROWS)], decoding)
    return {(one.id, one.sample): (one.ids, round(one.logprob, 3)) for one in said}


@pytest.mark.parametrize("strategy", DECODINGS)
def test_it_writes_the_same_in_any_batch(strategy: str, doha: tuple[Any, TurnEncoder]) -> None:
    one, several = (answers(*doha, DECODINGS[strategy], size) for size in (1, 16))
    assert one == several and len(one) >= len(ROWS)


@pytest.fixture(scope="module")
def trained_doha(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that began from plain BART's weights, with places for a whole turn."""
    bart = write_language_model(tmp_path_factory.mktemp("bart"), "bart", num_places=512)
    folder = tmp_path_factory.mktemp("doha") / "run"
    options = ["model=doha", f"model.weights={bart}", *SMALL_GENERATOR, "control=ctrl", "callbacks.num_examples=2"]
    train_here(f"run_dir={folder}", *options)
    return folder


def test_a_run_leaves_a_folder_of_its_own_kind_that_answers_and_is_exported(trained_doha: Path, tmp_path: Path) -> None:
    sidecar = read_sidecar(trained_doha / "hf")
    assert sidecar is not None and sidecar.layout["architecture"] == "doha"
    assert json.loads((trained_doha / "hf" / "config.json").read_text())["model_type"] == "doha"
    generator = Generator.load(str(trained_doha))
    assert type(generator.engine.model).__name__ == "DohaForConditionalGeneration"  # type: ignore[attr-defined]
    assert isinstance(generator.reply(knowledge="The river is long.", history=["Is it long?"]), str)
    report = export(str(trained_doha), str(tmp_path / "out"))
    assert report.difference <= 1e-5 and report.reloaded_in == "faithkit's DohaForConditionalGeneration"
    assert "Plain transformers cannot load this model" in (tmp_path / "out" / "README.md").read_text()
    assert Generator.load(str(tmp_path / "out")).settings == generator.settings
