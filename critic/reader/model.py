"""The language model of `thorough`: a base with LoRA adapters, and two linear heads on its last states.

The verdict's head reads the last token behind an answer, the other each token of the answer: is it in a wrong part?
The file of adapters has for each adapted layer `NAME.a` [rank, inputs] and `NAME.b` [outputs, rank], and the heads.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn

from critic.reader.packing import Offsets, Packer
from faithkit.errors import UserError, shorten
from faithkit.weights.load import import_transformers, load_model
from faithkit.weights.resolve import hash_weights, loading

BASE = "smollm2-135m"
SCALE = 2.0  # of the adapters' output: alpha over rank
HEADS = ("verdict.weight", "verdict.bias", "token.weight", "token.bias")
HINT = "install faithkit again, or make the file again with `python -m faithkit_workflows.fit_reader`"


class Reading(NamedTuple):
    """What the model says about an answer.

    Args:
        verdict: Log-odds of hallucinated; of a long answer those of its worst part.
        tokens: Log-odds of each token being wrong.
        offsets: The characters of each token in the answer.
    """

    verdict: float
    tokens: list[float]
    offsets: Offsets


class Reader:
    """Reads answers with their contexts.

    Args:
        model: The language model without its output layer.
        heads: The heads, by the names of HEADS.
    """

    def __init__(self, model: Any, heads: Mapping[str, Tensor], tokenizer: Tokenizer):
        self.model, self.packer = model, Packer(tokenizer)
        self.heads = torch.cat([heads["verdict.weight"], heads["token.weight"]]).float()
        self.biases = torch.cat([heads["verdict.bias"], heads["token.bias"]]).float()

    @classmethod
    def load(cls, adapters: Path, *, base: str, base_sha256: str, device: str) -> "Reader":
        """Loads the base, and adds the adapters to its weights.

        Raises:
            UserError: The base has other weights, or the adapters do not fit it.
        """
        import_transformers()
        from transformers import AutoModelForCausalLM

        with loading(base) as source:
            if (found := hash_weights(source) or "no weights") != base_sha256:
                problem = (
                    f"the detector was fitted with other weights of {base}: {base_sha256[:12]}..., not {found[:12]}..."
                )
                hint = f"delete the folder, and `python -m faithkit.weights fetch {base}` downloads it again"
                raise UserError(problem, place=source, hint=hint)
            model = load_model(AutoModelForCausalLM, source).model
            tokenizer = Tokenizer.from_file(str(Path(source) / "tokenizer.json"))
        try:
            tensors = load_file(adapters)
        except Exception as error:  # safetensors' errors have no common class
            raise UserError(f"broken adapters: {type(error).__name__}", place=str(adapters), hint=HINT) from error
        if missing := [name for name in HEADS if name not in tensors]:
            raise UserError(f"the adapters lack {missing[0]}", place=str(adapters), hint=HINT)
        heads = {name: tensors.pop(name) for name in HEADS}
        add_adapters(model, tensors, str(adapters))
        return cls(model.eval().requires_grad_(False).to(device), heads, tokenizer)

    @torch.inference_mode()
    def read(self, texts: Sequence[tuple[str, str, str]]) -> list[Reading]:
        """Reads contexts, questions and answers; a context that several answers share is read once."""
        by_context: dict[str, dict[str, list[tuple[int, str]]]] = {}
        for row, (context, question, answer) in enumerate(texts):
            by_context.setdefault(context, {}).setdefault(question, []).append((row, answer))
        device = self.model.device
        verdicts = [float("-inf")] * len(texts)
        tokens, offsets = [list[float]() for _ in texts], [Offsets() for _ in texts]
        for context, answers in by_context.items():
            for pack in self.packer.pack(context, answers):
                output = self.model(
                    input_ids=pack.ids.to(device),
                    attention_mask=pack.mask.to(device),
                    position_ids=pack.positions.to(device),
                    use_cache=False,
                )
                odds = (output.last_hidden_state[0].float().cpu() @ self.heads.T + self.biases).tolist()
                for piece, place, verdict in zip(pack.pieces, pack.places, pack.verdicts, strict=True):
                    verdicts[piece.row] = max(verdicts[piece.row], odds[verdict][0])
                    tokens[piece.row] += [odds[place + n][1] for n in range(len(piece.ids))]
                    offsets[piece.row] += piece.offsets
        return [Reading(*one) for one in zip(verdicts, tokens, offsets, strict=True)]


def add_adapters(model: nn.Module, tensors: Mapping[str, Tensor], place: str) -> None:
    """Adds adapters to the weights of a model.

    Raises:
        UserError: They are of another model.
    """
    layers = dict(model.named_modules())
    for name in sorted({name.rpartition(".")[0] for name in tensors}):
        layer, a, b = layers.get(name), tensors.get(f"{name}.a"), tensors.get(f"{name}.b")
        if not isinstance(layer, nn.Linear) or a is None or b is None or a.ndim != 2 or b.ndim != 2:
            raise UserError(f"the base has no layer {shorten(name)} for these adapters", place=place, hint=HINT)
        if (len(b), a.shape[1]) != layer.weight.shape or len(a) != b.shape[1]:
            raise UserError(f"the adapters of {name} have another shape", place=place, hint=HINT)
        with torch.no_grad():
            layer.weight += SCALE * (b.float() @ a.float())
