"""Folders of untrained generators, as a run leaves them."""

from functools import cache
from pathlib import Path
from typing import Any

from data_modules.encoding.sequence_layout import CAUSAL, SEQ2SEQ, TurnLayout, add_markers
from data_modules.encoding.tokens import load_tokenizer
from generation.weights import Settings, starts_with
from tests.tiny import T5_SIZE, write_tokenizer

CONTROL = ("voice", "overlap", "entailment")


def write_generator(folder: Path, kind: str, control: tuple[str, ...] = ()) -> Path:
    """A tiny generator of random weights: T5 or Llama, with its tokenizer and its sidecar."""
    import torch
    import transformers as t

    from faithkit.files.model_folder import write_folder

    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder, "unigram" if kind == SEQ2SEQ else "bpe")
    tokenizer = load_tokenizer(str(folder))
    tokenizer.eos_token = "</s>"
    layout = TurnLayout(kind=kind, max_length=400, max_response_length=12, control=control)
    add_markers(tokenizer, layout)
    torch.manual_seed(0)
    size = {"vocab_size": len(tokenizer)}
    if kind == SEQ2SEQ:
        model: Any = t.T5ForConditionalGeneration(t.T5Config(**size, **T5_SIZE, initializer_factor=3.0))
    else:
        size |= {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2}
        model = t.LlamaForCausalLM(t.LlamaConfig(**size, intermediate_size=64, initializer_range=0.5))
    prefix = (tokenizer.convert_tokens_to_ids("<|wizard|>"),) if kind == SEQ2SEQ else ()
    starts_with(model, tokenizer, prefix)
    architecture = {SEQ2SEQ: "seq2seq", CAUSAL: "causal"}[kind]
    thresholds = {"overlap": [0.2, 0.5]} if "overlap" in control else {}
    settings = Settings(layout=layout, architecture=architecture, thresholds=thresholds, origin={})
    write_folder(folder, model, tokenizer, settings.to_sidecar())
    return folder


@cache
def examples(count: int = 12) -> list[Any]:
    """Turns of the embedded corpus."""
    from data_modules.embedded.corpus import generate

    return list(generate("test", count))
