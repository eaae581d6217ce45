"""Opens a trained generator (a run, an hf/ folder, a hub name), and builds the engine that decodes: ours, or vLLM."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from data_modules.encoding.sequence_layout import CAUSAL, TurnLayout, add_markers
from data_modules.encoding.tokens import load_tokenizer
from data_modules.encoding.turn_encoder import TurnEncoder
from faithkit import arguments
from faithkit.detector import GENERATOR
from faithkit.errors import UserError
from faithkit.files.model_folder import read_settings
from faithkit.inference.local_text import start_transformers
from faithkit.inference.text import AUTO, BEAM, GREEDY, TRANSFORMERS, VLLM, Engine, LocalOptions
from faithkit.weights.load import check_end_token, import_transformers, load_config
from faithkit.weights.resolve import fetch_folder, loading
from generation.weights import ARCHITECTURES, Settings, load_generator, read_families

MAX_LENGTH, MAX_RESPONSE_LENGTH = 512, 100  # the paper's, for models without our sidecar


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
