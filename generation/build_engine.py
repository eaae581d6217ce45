"""Chooses and builds the engine that decodes: ours on transformers, or vLLM."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from data_modules.encoding.sequence_layout import CAUSAL
from faithkit import arguments
from faithkit.errors import UserError
from faithkit.inference.decoding import BEAM, GREEDY, Engine
from faithkit.inference.local_text import LocalOptions
from faithkit.inference.text import AUTO, TRANSFORMERS, VLLM
from faithkit.weights.load import check_end_token, filler_token
from generation.load_checkpoint import LoadedCheckpoint, load_model


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
    engine = VllmEngine(
        loaded.source,
        eos_id=loaded.encoder.tokenizer.eos_token_id,
        max_length=longest,
        precision=options.precision,
        device=options.device,
        batch_size=options.batch_size,
        memory_fraction=options.memory_fraction,
        num_gpus=options.num_gpus,
    )
    return engine, longest


def build_transformers(loaded: LoadedCheckpoint, path: str, options: LocalOptions) -> tuple[Engine, int | None]:
    """Loads a model into our engine; gives also its number of places, None where it counts none."""
    from faithkit.inference.transformers_engine import TransformersEngine

    encoder, tokenizer = loaded.encoder, loaded.encoder.tokenizer
    check_end_token(tokenizer, path)
    model = load_model(loaded, device=options.device, precision=options.precision)
    places = getattr(model.config, "max_position_embeddings", None)
    if places is not None and encoder.layout.max_length > places:
        problem = f"max_length is {encoder.layout.max_length}, but this model has {places} places"
        raise UserError(problem, place=path, hint=f"set max_length={places} or less")
    engine = TransformersEngine(
        model,
        eos_id=tokenizer.eos_token_id,
        pad_id=filler_token(tokenizer),
        decoder_prefix=encoder.decoder_prefix,
        batch_size=options.batch_size,
    )
    return engine, places


Build = Callable[[LoadedCheckpoint, str, LocalOptions], tuple[Engine, int | None]]
# Every engine by its name. It gives the engine, and how many tokens of prompt and answer the model has places for.
ENGINES: Mapping[str, Build] = {TRANSFORMERS: build_transformers, VLLM: build_vllm}
