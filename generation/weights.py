"""Loads language models for generation, and the settings that are stored with their weights.

Every marker of a dialogue has an embedding.
"""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar

import torch

from data_modules.encoding.sequence_layout import CAUSAL, CONTROL_TOKENS, KNOWLEDGE, SEEKER, SEQ2SEQ, WIZARD, TurnLayout
from faithkit.detector import GENERATOR
from faithkit.errors import UserError
from faithkit.files.model_folder import Sidecar
from faithkit.settings.check import options, read_stored
from faithkit.settings.types import Conflict, OneOf, Share
from faithkit.weights.load import check_vocabulary, load_config, load_model, override, read_config
from faithkit.weights.resolve import loading

# The config keys of dropout in T5, GPT-2 and BART.
DROPOUTS = ("dropout_rate", "resid_pdrop", "embd_pdrop", "dropout", "activation_dropout")
ATTENTION_DROPOUTS = ("attn_pdrop", "attention_dropout")


@dataclass(frozen=True, slots=True)
class Architecture:
    """A family of models with the same class and layout of turns.

    Args:
        kind: SEQ2SEQ or CAUSAL, the layout that it reads.
        loader: Name of the class that loads it.
        heads: Endings of the model class names that belong to it.
        choice: The option that selects it on the command line.
        module: Where the class is.
    """

    kind: str
    loader: str
    heads: tuple[str, ...]
    choice: str
    module: str = "transformers"

    @property
    def model_class(self) -> Any:
        return getattr(importlib.import_module(self.module), self.loader)

    @property
    def config_class(self) -> Any:
        from transformers import AutoConfig

        return getattr(self.model_class, "config_class", AutoConfig)

    @property
    def is_internal(self) -> bool:
        """Whether the class is in this package, not in transformers."""
        return self.module != "transformers"


DOHA = "DohaForConditionalGeneration"
BART = "BartModel"  # facebook/bart-base names it: its head is the embeddings, so that nothing is missing
ARCHITECTURES = {
    "seq2seq": Architecture(SEQ2SEQ, "AutoModelForSeq2SeqLM", ("ForConditionalGeneration", BART), "model=t5"),
    "causal": Architecture(CAUSAL, "AutoModelForCausalLM", ("ForCausalLM", "LMHeadModel"), "model=gpt2"),
    "doha": Architecture(SEQ2SEQ, DOHA, ("BartForConditionalGeneration", BART), "model=doha", "generation.doha"),
}


def load_generator(
    weights: str,
    architecture: str,
    *,
    tokenizer: Any,
    new_tokens: Mapping[int, Sequence[int]],
    dropout: float | None = None,
    attention_dropout: float | None = None,
) -> Any:
    """Loads the model in fp32, with an embedding for every token of the tokenizer.

    Args:
        architecture: A key of ARCHITECTURES.
        new_tokens: Tokens that the weights do not know, each with the ids of words that describe it: its embedding
            starts as their mean.

    Raises:
        UserError: The weights cannot be found, or are of another family.
    """
    family = ARCHITECTURES[architecture]
    with loading(weights) as folder:
        config_class = family.config_class  # loads the module of a family of ours, which makes its type known
        names, fitting = read_families(folder)
        if architecture not in fitting:
            hint = (
                f"these weights are for {ARCHITECTURES[fitting[0]].choice}"
                if fitting
                else "choose one that writes text"
            )
            raise UserError(f"{', '.join(names)} is not a {architecture} model", place=weights, hint=hint)
        config = load_config(config_class, folder)
        # DoHA looks for the markers itself.
        override(config, ["knowledge_token_id"], tokenizer.convert_tokens_to_ids(KNOWLEDGE))
        override(config, ["speaker_token_ids"], tokenizer.convert_tokens_to_ids([SEEKER, WIZARD]))
        override(config, (*DROPOUTS, *ATTENTION_DROPOUTS), dropout)
        override(config, ATTENTION_DROPOUTS, attention_dropout)
        model = load_model(family.model_class, folder, config=config)
        check_vocabulary(model, tokenizer, folder, new=new_tokens)
    sides = [model.get_input_embeddings().weight, model.get_output_embeddings().weight]
    # T5's config says tied whatever the weights are, and resizing would believe it.
    model.config.tie_word_embeddings = sides[0] is sides[1]
    if len(tokenizer) > len(sides[0]):  # some models have more rows than their tokenizer has tokens
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        sides = [model.get_input_embeddings().weight, model.get_output_embeddings().weight]
    with torch.no_grad():
        for token, words in new_tokens.items():
            for rows in sides if sides[0] is not sides[1] else sides[:1]:
                rows[token] = rows[list(words)].mean(0)
    return model


def starts_with(model: Any, tokenizer: Any, decoder_prefix: Sequence[int]) -> None:
    """Writes start and end of a response into the configs, for plain `generate`; other generation settings go."""
    from transformers import GenerationConfig

    known = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    if decoder_prefix:
        known["decoder_start_token_id"] = decoder_prefix[0]
    model.generation_config = GenerationConfig(**known)
    if tokenizer.pad_token_id == tokenizer.eos_token_id:
        del known["pad_token_id"]  # GPT-2 would take every packed row for a padded one, and warn
    for name, value in known.items():
        setattr(model.config, name, value)


def read_families(folder: str) -> tuple[list[str], list[str]]:
    """Reads the class names of a model from its config, or else its type; and what it can be loaded as.

    Returns:
        The names, and the keys of ARCHITECTURES that they belong to, the likeliest first.
    """
    stored = read_config(folder, own_types=("doha",))
    names = stored.get("architectures") or [stored["model_type"]]
    if DOHA in names:
        return names, ["doha"]
    return names, [key for key, one in ARCHITECTURES.items() if any(name.endswith(one.heads) for name in names)]


@options()
class Settings:
    """The settings that a generator was trained with.

    Args:
        layout: How an example becomes a sequence.
        architecture: A key of `generation.weights.ARCHITECTURES`.
        thresholds: The boundaries of control features that training fitted, by group.
        origin: Base weights, data with their fingerprint, and versions.
    """

    layout: TurnLayout
    architecture: Annotated[str, OneOf(tuple(ARCHITECTURES))]
    thresholds: dict[Annotated[str, OneOf(tuple(CONTROL_TOKENS))], list[Share]]
    origin: dict[str, Any]

    conflicts: ClassVar[tuple[Conflict, ...]] = (
        Conflict(
            lambda s: s.layout.kind != ARCHITECTURES[s.architecture].kind,
            "layout.kind is {s.layout.kind!r}",
            "{s.architecture} models read another layout",
        ),
        Conflict(
            lambda s: s.wrong_group,
            "thresholds.{s.wrong_group} has not a boundary between each two levels",
            "train the generator again",
        ),
    )

    @property
    def wrong_group(self) -> str | None:
        """The first control group with the wrong number of thresholds."""
        for group, boundaries in self.thresholds.items():
            if len(boundaries) != len(CONTROL_TOKENS[group]) - 1:
                return group
        return None

    def to_sidecar(self) -> Sidecar:
        """Gives the settings in the form that `faithkit.json` stores."""
        layout = asdict(self.layout) | {"control": list(self.layout.control), "architecture": self.architecture}
        layout["markers"] = {"knowledge": KNOWLEDGE, "seeker": SEEKER, "wizard": WIZARD}
        return Sidecar(kind=GENERATOR, labels=[], layout=layout, thresholds=self.thresholds, origin=self.origin)

    @classmethod
    def from_sidecar(cls, sidecar: Sidecar) -> "Settings":
        """Reads the settings back from a stored sidecar."""
        layout = {name: value for name, value in sidecar.layout.items() if name not in ("architecture", "markers")}
        return cls(
            layout=read_stored(TurnLayout, layout, "layout"),
            architecture=sidecar.layout["architecture"],
            thresholds=sidecar.thresholds,
            origin=sidecar.origin,
        )
