"""Entailment by any critic of ours, any NLI model of the hub, or a Flan-T5: the same three probabilities of all.

A critic does not tell what contradicts the knowledge from what merely is not in it: what it calls hallucinated is
neutral here, and nothing is a contradiction. The same holds for NLI models of two classes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from critic.load_checkpoint import load_checkpoint
from critic.sequence.read_windows import window_logits
from critic.sequence.scorer import CHUNK, CPU_BATCH_TOKENS, GPU_BATCH_TOKENS, Critic
from critic.sequence.settings import Settings
from data_modules.encoding.pairs import PairEncoder
from faithkit.calibration.thresholds import apply_temperature, logit
from faithkit.entailment import CONTRADICTION, ENTAILMENT, NEUTRAL, Entailment
from faithkit.errors import UserError
from faithkit.files.model_folder import CRITIC, SIDECAR, find_folder
from faithkit.hardware import to_bf16, wants_bf16
from faithkit.metrics.responses.pretrained import load_pretrained
from faithkit.weights.load import read_config
from faithkit.weights.resolve import hub_folder, is_hub_name, loading
from faithkit_workflows.detectors.asked_entailment import AskedEntailment

OF_CRITICS = {"faithful", "hallucinated"}
# How the labels of NLI models begin, in lower case; of two classes the second is the one that is not entailment.
COLUMNS = {"entail": ENTAILMENT, "neutral": NEUTRAL, "contra": CONTRADICTION, "not": NEUTRAL, "non": NEUTRAL}


def load_entailment(
    checkpoint: str, *, device: str | None = None, precision: str = "32-true", batch_tokens: int | None = None
) -> Entailment:
    """A critic (a run, an hf/ folder, a hub name), an NLI model or an encoder-decoder, told apart by its config.json.

    Args:
        device: None takes the GPU where there is one.
        precision: bf16, or auto: bf16 where the hardware computes in it; anything else is fp32.

    Raises:
        UserError: It cannot be loaded, or its labels are neither's.
    """
    if _writes(checkpoint):
        model, tokenizer, _ = load_pretrained("AutoModelForSeq2SeqLM", checkpoint, device=device, precision=precision)
        return AskedEntailment(model, tokenizer, batch_tokens=batch_tokens)
    loaded = load_checkpoint(checkpoint, "AutoModelForSequenceClassification", CRITIC, Settings.from_sidecar, device)
    if wants_bf16(precision, loaded.device):
        to_bf16(loaded.model)
    labels = [str(loaded.model.config.id2label[i]).lower() for i in range(loaded.model.config.num_labels)]
    if set(labels) == OF_CRITICS:
        return CriticEntailment(Critic.of(loaded, checkpoint, batch_tokens=batch_tokens))
    longest = min(512, getattr(loaded.model.config, "max_position_embeddings", 512) - 2)
    encoder = PairEncoder(tokenizer=loaded.tokenizer, max_length=longest)
    default = CPU_BATCH_TOKENS if loaded.device == "cpu" else GPU_BATCH_TOKENS
    return NliModel(loaded.model, encoder, nli_columns(labels, checkpoint), batch_tokens=batch_tokens or default)


def _writes(checkpoint: str) -> bool:
    """Tells whether a name is that of an encoder-decoder of someone else's that writes text, which can be asked."""
    folder = hub_folder(checkpoint) if is_hub_name(checkpoint) else find_folder(checkpoint)
    if folder and (folder / SIDECAR).exists():
        return False
    with loading(str(folder or checkpoint)) as source:
        names = read_config(source).get("architectures")
    return isinstance(names, list) and any(str(name).endswith("ForConditionalGeneration") for name in names)


def nli_columns(labels: Sequence[str], checkpoint: str) -> list[int]:
    """Finds the column, of three, that each class of a model belongs to."""
    columns = [next((c for start, c in COLUMNS.items() if label.startswith(start)), None) for label in labels]
    found = [column for column in columns if column is not None]
    if len(found) < len(labels) or len(set(found)) < len(found) or ENTAILMENT not in found:
        hint = "give a critic of ours, or a model whose labels are entailment, neutral, contradiction"
        raise UserError(f"not an NLI model: its labels are {', '.join(labels)}", place=checkpoint, hint=hint)
    return found


class CriticEntailment:
    """A critic as an NLI model: faithful is entailment, hallucinated is neutral.

    Log-odds are moved by the critic's threshold, so that the likelier of the two is what the critic itself says.
    """

    def __init__(self, critic: Critic):
        self.critic = critic

    def entailment(self, premises: Sequence[str], hypotheses: Sequence[str]) -> NDArray[np.float64]:
        scores = self.critic.probabilities(premises, hypotheses)
        hallucinated = apply_temperature(logit(scores) - logit(self.critic.calibration.threshold), 1.0)
        found = np.zeros((len(scores), 3))
        found[:, ENTAILMENT], found[:, NEUTRAL] = 1 - hallucinated, hallucinated
        return found


class NliModel:
    """A sequence classifier over NLI's labels. Of a long premise the window that entails most decides.

    Args:
        columns: Which of the three columns each of its classes belongs to.
    """

    def __init__(self, model: Any, encoder: PairEncoder, columns: Sequence[int], *, batch_tokens: int):
        self.model, self.encoder, self.columns, self.batch_tokens = model, encoder, list(columns), batch_tokens

    def entailment(self, premises: Sequence[str], hypotheses: Sequence[str]) -> NDArray[np.float64]:
        parts = [
            self._chunk(premises[begin : begin + CHUNK], hypotheses[begin : begin + CHUNK])
            for begin in range(0, len(premises), CHUNK)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, 3))

    def _chunk(self, premises: Sequence[str], hypotheses: Sequence[str]) -> NDArray[np.float64]:
        columns = self.encoder.encode_texts(premises, hypotheses)
        logits, owner = window_logits(self.model, self.encoder, columns, self.batch_tokens)
        windows = np.zeros((len(logits), 3))
        windows[:, self.columns] = torch.from_numpy(logits).double().softmax(-1).numpy()
        order = np.lexsort((windows[:, ENTAILMENT], owner))  # a pair's most entailing window comes last
        last = np.append(np.flatnonzero(np.diff(owner[order])), len(order) - 1)
        return windows[order[last]]
