"""Declares the block `engine`, which names a language model and the program that runs it, and builds the engine."""

from pathlib import Path
from typing import Annotated, Any

from faithkit.errors import UserError
from faithkit.inference.openai_server import ServerOptions
from faithkit.inference.text import AUTO, ENGINES, OPENAI, TRANSFORMERS, VLLM, LocalOptions, TextEngine
from faithkit.packages import install_hint
from faithkit.settings.check import options
from faithkit.settings.types import (
    PRECISIONS,
    Count,
    Hint,
    OneOf,
    OrNull,
    PositiveShare,
    Text,
    Tokens,
)

LOCAL_OPTIONS = ("precision", "batch_size", "max_length", "memory_fraction", "num_gpus")


@options()
class EngineOptions(ServerOptions):
    """The block `engine` of evaluate.py.

    Args:
        name: One of ENGINES; None for no language model.
        model: A folder, a local name or a hub name; of a server the model's name there.
        precision: Of a model on this machine.
        batch_size: Texts at a time; changes the speed, not the replies.
        max_length: Tokens of prompt and reply together.
        memory_fraction: Of a GPU's memory, for vLLM.
        num_gpus: That share the model, in vLLM (tensor parallel).
        cache: The file that keeps replies, so that nothing is asked twice: `auto` for one in the user's cache, None for
            no file.
    """

    name: Annotated[Any, OneOf((None, *ENGINES))] = None
    model: Text | None = None
    precision: Annotated[str, OneOf(PRECISIONS)] = "auto"
    batch_size: Annotated[Count | None, OrNull("for what suits the device")] = None
    max_length: Annotated[Tokens | None, OrNull("for all that the model has")] = None
    memory_fraction: Annotated[PositiveShare | None, OrNull("to leave it to vLLM")] = None
    num_gpus: Count = 1
    cache: Annotated[Text | None, Hint("use auto, a file's path, or null for none")] = AUTO


def build_text_engine(options: EngineOptions) -> TextEngine:
    """Builds the engine, behind the cache of its replies.

    Raises:
        UserError: No model is named, a package is missing, or the model cannot be loaded.
    """
    if not options.model:
        hint = "engine.model=NAME: a folder, a local name or a hub name; of a server the model's name there"
        raise UserError(f"engine={options.name} without a model", hint=hint)
    if options.name == OPENAI:
        from faithkit.inference.openai_engine import OpenAiEngine

        engine: TextEngine = OpenAiEngine(options.model, options)
    else:
        from faithkit.inference.local_text import load_local

        name = options.name
        if name == AUTO:
            from faithkit.inference.vllm_engine import check_platform

            name = VLLM
            try:
                check_platform()
            except UserError:  # vLLM is not installed, or finds no device
                name = TRANSFORMERS
        if name == TRANSFORMERS and options.num_gpus > 1:
            problem = f"vLLM alone divides a model over GPUs, and engine.num_gpus is {options.num_gpus}"
            raise UserError(problem, place=f"engine={options.name}", hint=f"{install_hint(VLLM)}, and engine=vllm")
        local = {name: getattr(options, name) for name in LOCAL_OPTIONS}
        engine = load_local(options.model, LocalOptions(engine=name, **local))
    if options.cache is None:
        return engine
    from faithkit.files.cache import cache_dir
    from faithkit.inference.reply_cache import CachedEngine

    path = cache_dir() / "replies.sqlite" if options.cache == AUTO else Path(options.cache).expanduser()
    # Replies of a server are stored at once; losing a batch of a local model costs only time.
    return CachedEngine(engine, path, commit_every=1 if options.name == OPENAI else 32)
