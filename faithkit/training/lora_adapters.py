"""LoRA adapters in training: the tensors in checkpoints, the merged model at the end, and the folder `adapter/`."""

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

TRAINED = ".lora_"  # part of the names of all trained tensors, and of no others


@dataclass(frozen=True, slots=True)
class Adapters:
    """The adapters of a training that trains nothing else.

    Args:
        base: The hash of the base weights, which a resumed training checks; None if unknown.
        config: The configuration of peft.
        build: Loads the base again, with new adapters.
    """

    base: str | None
    config: Any
    build: Callable[[], Any]

    @classmethod
    def on(cls, weights: str, model: Any, build: Callable[[], Any]) -> "Adapters":
        """Describes the adapters of a model that peft wraps.

        Args:
            weights: The name of the base in the configuration.
        """
        return cls(describe_model(resolve(weights)).weights, model.peft_config[NAME], build)

    @staticmethod
    def select(state: Mapping[str, Any]) -> dict[str, Any]:
        """Selects the tensors of the adapters."""
        return {name: value for name, value in state.items() if TRAINED in name}

    def merged(self, model: Any, state: Mapping[str, Any], path: Path) -> Any:
        """Loads adapters into a model with adapters, and merges them into its weights.

        Args:
            path: The checkpoint, for errors.
        """
        load_weights(model, {**model.state_dict(), **state}, path)
        return model.merge_and_unload(safe_merge=True)

    def write(self, run: RunFolder) -> None:
        """Writes adapter/ of a finished run: the best checkpoint's adapters, with the sidecar and seen rows of hf/."""
        merged = read_sidecar(run.hf)
        assert merged is not None, "hf/ is written first"
        state = model_state(best_weights(run))
        sidecar = replace(merged, layout={**merged.layout, "base_weights": self.base})
        write_sealed(run.adapter, lambda folder: write_adapters(folder, state, self.config), sidecar, read_seen(run.hf))
