"""A training of adapters: what its checkpoints hold, the plain model that it ends with, and the folder `adapter/`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from faithkit.files.model_folder import read_sidecar, write_sealed
from faithkit.files.run_folder import RunFolder
from faithkit.provenance.seen_rows import read_seen
from faithkit.training.checkpoints import best_weights, load_weights, model_state
from faithkit.weights.adapters import NAME, write_adapters
from faithkit.weights.resolve import resolve
from faithkit.weights.used_model import describe_model

TRAINED = ".lora_"  # stands in the names of the tensors that are trained, and in no others


@dataclass(frozen=True, slots=True)
class Adapters:
    """The adapters of a training that trains nothing else.

    Args:
        base: The hash of the weights that they stand on, on which a resumed training insists; None where it cannot be
            told.
        config: peft's own.
        build: Loads the base again, with new adapters on it.
    """

    base: str | None
    config: Any
    build: Callable[[], Any]

    @classmethod
    def on(cls, weights: str, model: Any, build: Callable[[], Any]) -> "Adapters":
        """Describes the adapters of a model that peft wraps.

        Args:
            weights: The base, as the configuration names it.
        """
        return cls(describe_model(resolve(weights)).weights, model.peft_config[NAME], build)

    @staticmethod
    def select(state: Mapping[str, Any]) -> dict[str, Any]:
        """Selects the tensors of adapters."""
        return {name: value for name, value in state.items() if TRAINED in name}

    def merged(self, model: Any, state: Mapping[str, Any], path: Path) -> Any:
        """Loads adapters into a model that has some, and adds them to the weights beside them: a plain model.

        Args:
            path: The checkpoint, for errors.
        """
        load_weights(model, {**model.state_dict(), **state}, path)
        return model.merge_and_unload(safe_merge=True)

    def write(self, run: RunFolder) -> None:
        """Writes adapter/ of a finished run: the best checkpoint's, with what stands beside the weights of hf/."""
        whole = read_sidecar(run.hf)
        assert whole is not None, "hf/ is written first"
        state = model_state(best_weights(run))
        sidecar = replace(whole, layout={**whole.layout, "base_weights": self.base})
        write_sealed(run.adapter, lambda folder: write_adapters(folder, state, self.config), sidecar, read_seen(run.hf))
