"""Loads generators with the settings that are stored with them, and builds the engine that decodes: ours, or vLLM.

Every marker of a dialogue has an embedding.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, ClassVar, NamedTuple

import torch

from data_modules.encoding.sequence_layout import (
    CAUSAL,
    CONTROL_TOKENS,
    KNOWLEDGE,
    SEEKER,
    WIZARD,
    TurnLayout,
    add_markers,
)
from data_modules.encoding.tokens import load_tokenizer
from data_modules.encoding.turn_encoder import TurnEncoder
from faithkit import arguments
from faithkit.detector import GENERATOR
from faithkit.errors import UserError
from faithkit.files.model_folder import Sidecar, read_settings
from faithkit.inference.local_text import start_transformers
from faithkit.inference.text import AUTO, BEAM, GREEDY, TRANSFORMERS, VLLM, Engine, LocalOptions
from faithkit.settings.check import options, read_stored
from faithkit.settings.types import Conflict, OneOf, Share
from faithkit.weights.load import (
    check_end_token,
    check_vocabulary,
    import_transformers,
    load_config,
    load_model,
    override,
    read_config,
)
from faithkit.weights.resolve import fetch_folder, loading
from generation.options import ARCHITECTURES, DOHA

# The config keys of dropout in T5, GPT-2 and BART.
DROPOUTS = ("dropout_rate", "resid_pdrop", "embd_pdrop", "dropout", "activation_dropout")
ATTENTION_DROPOUTS = ("attn_pdrop", "attention_dropout")
MAX_LENGTH, MAX_RESPONSE_LENGTH = 512, 100  # the paper's, for models without our sidecar


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
        architecture: A key of `generation.options.ARCHITECTURES`.
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


class LoadedCheckpoint(NamedTuple):
    """A generator without its weights.

    Args:
        source: The folder or hub name for `from_pretrained`.
        encoder: Lays turns out for it.
        new_tokens: Markers that its folder lacks, with the ids of words that describe them.
    """

    source: str
    encoder: TurnEncoder
    settings: Settings
    new_tokens: dict[int, list[int]]


def load_checkpoint(path: str, max_length: int | None = None) -> LoadedCheckpoint:
    """Reads settings and tokenizer, not the weights; nothing in the folder is executed.

    A model without our sidecar reads turns by the default layout: 512 tokens or as many as it has places for, all the
    history that fits, answers of up to 100 tokens, no control tokens. Markers that it lacks are added; their embeddings
    start from those of the words that describe them.

    Args:
        max_length: Tokens that it reads, in place of those that it was trained with.

    Raises:
        UserError: The model writes no text.
    """
    import_transformers()
    folder = fetch_folder(path)
    settings = read_settings(folder, GENERATOR, Settings.from_sidecar) if folder else None
    with loading(str(folder or path)) as source:
        if settings is None:
            names, fitting = read_families(source)
            if not fitting:
                hint = "give a run of a generator, or a language model"
                raise UserError(f"{', '.join(names)} writes no text", place=source, hint=hint)
            family = ARCHITECTURES[fitting[0]]
            config = load_config(family.config_class, source)
            given = TurnLayout(
                kind=family.kind,
                max_length=min(MAX_LENGTH, getattr(config, "max_position_embeddings", None) or MAX_LENGTH),
                max_response_length=MAX_RESPONSE_LENGTH,
            )
            settings = Settings(layout=given, architecture=fitting[0], thresholds={}, origin={})
        tokenizer = load_tokenizer(source)
    new_tokens = add_markers(tokenizer, settings.layout)
    layout = settings.layout if max_length is None else replace(settings.layout, max_length=max_length)
    return LoadedCheckpoint(source, TurnEncoder(tokenizer, layout, limit="max_length"), settings, new_tokens)


def load_weights(loaded: LoadedCheckpoint) -> Any:
    """Loads the weights in fp32."""
    tokens = {"tokenizer": loaded.encoder.tokenizer, "new_tokens": loaded.new_tokens}
    return load_generator(loaded.source, loaded.settings.architecture, **tokens)


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engine that `engine=auto` comes to.

    Args:
        name: TRANSFORMERS or VLLM.
        reason: Why, as the end of a sentence.
    """

    name: str
    reason: str

    def __str__(self) -> str:
        return f"engine: {self.name} ({self.reason})"


def check_engine(engine: str) -> None:
    """Refuses engines that do not exist."""
    arguments.read_choice("engine", engine, (AUTO, *ENGINES))


def choose_engine(
    read: Callable[[], LoadedCheckpoint], *, strategy: str = GREEDY, device: str | None = None
) -> EngineChoice:
    """Prefers vLLM where it is installed, finds a device, and can run the model and the decoding; else it is ours.

    Args:
        read: Opens the checkpoint; called only where vLLM could run.
        strategy: Of `Decoding`.
        device: That the caller asks for; None for any.
    """
    from faithkit.inference.vllm_engine import can_run, check_platform

    try:
        vllm_device = "cpu" if check_platform() else "cuda"
    except UserError as error:
        return EngineChoice(TRANSFORMERS, error.problem)
    if device is not None and not device.startswith(vllm_device):
        return EngineChoice(TRANSFORMERS, f"vLLM runs on {vllm_device} here, and device={device} is asked for")
    if strategy == BEAM:
        return EngineChoice(TRANSFORMERS, "vLLM searches no beams here")
    loaded = read()
    if loaded.settings.layout.kind != CAUSAL:
        return EngineChoice(TRANSFORMERS, "vLLM runs causal models, and this is an encoder-decoder")
    if loaded.new_tokens:
        return EngineChoice(TRANSFORMERS, "the model's folder lacks the markers of a dialogue, which vLLM cannot add")
    if not can_run(loaded.source):
        return EngineChoice(TRANSFORMERS, "vLLM does not know this architecture")
    return EngineChoice(VLLM, f"it is installed and runs causal models on {vllm_device}")


def build_vllm(loaded: LoadedCheckpoint, path: str, options: LocalOptions) -> tuple[Engine, int | None]:
    """Loads a causal model into vLLM; gives also how many tokens of prompt and answer it has places for."""
    from faithkit.inference.vllm_engine import VllmEngine

    if loaded.new_tokens:
        problem = "vLLM runs a folder as it is, and this one lacks the markers of a dialogue"
        raise UserError(problem, place=path, hint="give a run of a generator, or use engine=transformers")
    layout = loaded.encoder.layout
    longest = layout.max_length + layout.max_response_length
    eos_id = loaded.encoder.tokenizer.eos_token_id
    return VllmEngine(loaded.source, options, eos_id=eos_id, max_length=longest), longest


def build_transformers(loaded: LoadedCheckpoint, path: str, options: LocalOptions) -> tuple[Engine, int | None]:
    """Loads a model into our engine; gives also its number of places, None if it counts none."""
    encoder, tokenizer = loaded.encoder, loaded.encoder.tokenizer
    check_end_token(tokenizer, path)
    model = load_weights(loaded)
    places = getattr(model.config, "max_position_embeddings", None)
    if places is not None and encoder.layout.max_length > places:
        problem = f"max_length is {encoder.layout.max_length}, but this model has {places} places"
        raise UserError(problem, place=path, hint=f"set max_length={places} or less")
    engine, _ = start_transformers(model, tokenizer, options, decoder_prefix=encoder.decoder_prefix)
    return engine, places


Build = Callable[[LoadedCheckpoint, str, LocalOptions], tuple[Engine, int | None]]
# Every engine by its name. It gives the engine, and how many tokens of prompt and answer the model has places for.
ENGINES: Mapping[str, Build] = {TRANSFORMERS: build_transformers, VLLM: build_vllm}
