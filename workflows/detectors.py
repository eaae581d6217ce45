"""Any detector of ours, by what its folder says it is."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from faithkit.errors import UserError
from faithkit.files.model_folder import CRITIC, TAGGER, find_folder, read_sidecar
from faithkit.records import Example, Prediction
from faithkit.weights.resolve import HUB_NAME, loading


class Detector(Protocol):
    """A sequence critic or a span tagger."""

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]: ...


def load_detector(checkpoint: str | None, *, precision: str, batch_tokens: int | None) -> Detector:
    """The detector that a configuration names.

    Raises:
        UserError: It names none, or something else.
    """
    if not checkpoint:
        hint = "checkpoint=PATH of a run, an hf/ folder or a hub name; or predictions=FILE"
        raise UserError("nothing to evaluate: neither checkpoint nor predictions is given", hint=hint)
    if kind_of(checkpoint) == TAGGER:
        from critic.tagger.predictor import Tagger

        return Tagger.load(checkpoint, precision=precision, batch_tokens=batch_tokens)
    from critic.scorer import Critic

    return Critic.load(checkpoint, precision=precision, batch_tokens=batch_tokens)


def kind_of(checkpoint: str) -> str:
    """CRITIC or TAGGER: by the sidecar, else by the architecture that the weights were saved from."""
    from transformers import AutoConfig

    is_hub_name = not Path(checkpoint).expanduser().exists() and HUB_NAME.fullmatch(checkpoint)
    folder = None if is_hub_name else find_folder(checkpoint)
    if folder and (sidecar := read_sidecar(folder)):
        return sidecar.kind
    with loading(str(folder or checkpoint)) as source:
        architectures = AutoConfig.from_pretrained(source, trust_remote_code=False).architectures or [""]
    return TAGGER if architectures[0].endswith("ForTokenClassification") else CRITIC
