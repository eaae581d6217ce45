"""Opens a trained generator from a run, an hf/ folder or a hub name."""

from dataclasses import replace
from typing import Any, NamedTuple

from data_modules.encoding.sequence_layout import TurnLayout, add_markers
from data_modules.encoding.tokens import load_tokenizer
from data_modules.encoding.turn_encoder import TurnEncoder
from faithkit.detector import GENERATOR
from faithkit.errors import UserError
from faithkit.files.model_folder import read_settings
from faithkit.hardware import place_model
from faithkit.weights.load import import_transformers, load_config
from faithkit.weights.resolve import fetch_folder, loading
from generation.settings import Settings
from generation.weights import ARCHITECTURES, families_of, load_generator, model_names

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
    """
    import_transformers()
    folder = fetch_folder(path)
    settings = read_settings(folder, GENERATOR, Settings.from_sidecar) if folder else None
    with loading(str(folder or path)) as source:
        settings = settings or foreign_settings(source)
        tokenizer = load_tokenizer(source)
    new_tokens = add_markers(tokenizer, settings.layout)
    layout = settings.layout if max_length is None else replace(settings.layout, max_length=max_length)
    return LoadedCheckpoint(source, TurnEncoder(tokenizer, layout, limit="max_length"), settings, new_tokens)


def load_model(loaded: LoadedCheckpoint, *, device: str | None, precision: str) -> Any:
    """Loads the weights onto a device, for decoding.

    Args:
        device: None takes the GPU where there is one.
        precision: 32-true, bf16, or auto: bf16 where the hardware computes in it.
    """
    model = load_generator(
        loaded.source,
        loaded.settings.architecture,
        tokenizer=loaded.encoder.tokenizer,
        new_tokens=loaded.new_tokens,
    )
    return place_model(model, device, precision)[0]


def foreign_settings(source: str) -> Settings:
    """Makes the settings of a language model that has no sidecar of ours.

    Raises:
        UserError: The model writes no text.
    """
    names = model_names(source)
    fitting = families_of(names)
    if not fitting:
        hint = "give a run of a generator, or a language model"
        raise UserError(f"{', '.join(names)} writes no text", place=source, hint=hint)
    config = load_config(ARCHITECTURES[fitting[0]].config_class, source)
    layout = TurnLayout(
        kind=ARCHITECTURES[fitting[0]].kind,
        max_length=min(MAX_LENGTH, getattr(config, "max_position_embeddings", None) or MAX_LENGTH),
        max_response_length=MAX_RESPONSE_LENGTH,
    )
    return Settings(layout=layout, architecture=fitting[0], thresholds={}, origin={})
