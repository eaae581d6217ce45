"""Loads an encoder with a classification head."""

from collections.abc import Sequence
from typing import Annotated, Any

import torch

from faithkit.errors import UserError
from faithkit.fast import first_position
from faithkit.records import LABELS
from faithkit.settings.types import Sizes, Weights
from faithkit.weights.load import builds_empty, check_size, load_config, load_model, log_new_tensors, override, quietly
from faithkit.weights.resolve import loading

# Names of dropout in the configurations of BERT, RoBERTa and ModernBERT.
DROPOUTS = ("hidden_dropout_prob", "embedding_dropout", "mlp_dropout")
NLI_LABELS = {"entail", "neutra", "contra"}  # first six letters; of an NLI model only the encoder is used
Line = Annotated[Weights, Sizes((0, 2))]  # a slope and a bias, or nothing
DECODERS = ("ForCausalLM", "LMHeadModel")  # ends of the names of language models' classes
SEQ2SEQ = "ForConditionalGeneration"  # its encoder can tag tokens; its classifier reads the decoder
EVIDENCE = "evidence_weights"  # the key in faithkit.json of the weights of evidence
HEAD = "head"  # the key in faithkit.json of the calibration that the head contains: slope and bias
ATTENTION_DROPOUTS = ("attention_probs_dropout_prob", "attention_dropout")


def check_weights(name: str, source: str, expected: str, found: str) -> None:
    """Checks that a packaged detector is joined with the weights that it was fitted with.

    Args:
        source: Their folder.
        expected: The hash of the fit.

    Raises:
        UserError: They have another hash.
    """
    if found != expected:
        problem = f"the detector was fitted with other weights of {name}: {expected[:12]}..., not {found[:12]}..."
        hint = f"delete the folder, and `python -m faithkit.weights fetch {name}` downloads it again"
        raise UserError(problem, place=source, hint=hint)


def load_classifier(
    weights: str,
    labels: Sequence[str] = LABELS,
    *,
    of_tokens: bool = False,
    dropout: float | None = None,
    attention_dropout: float | None = None,
    seed: int = 0,
) -> Any:
    """Loads a classifier of sequences or tokens with these labels; a new head is initialised by the seed.

    The weights of another task, a critic's for a tagger, serve as an encoder.

    Raises:
        UserError: The weights cannot be loaded, or belong to a classifier with other labels.
    """
    import transformers
    from transformers import AutoConfig, AutoModel

    name = "AutoModelForTokenClassification" if of_tokens else "AutoModelForSequenceClassification"
    kind: Any = getattr(transformers, name)
    with quietly(), loading(weights) as folder, torch.random.fork_rng(devices=[]):
        config = load_config(AutoConfig, folder)
        architecture = (config.architectures or [""])[0]
        if architecture.endswith(DECODERS if of_tokens else (*DECODERS, SEQ2SEQ)):
            trained = "tagger" if of_tokens else "critic"
            problem = f"this is a language model ({architecture}), and a {trained} is trained from an encoder"
            hint = "set model.weights=minilm or to another encoder; model=judge trains a language model"
            raise UserError(problem, place=weights, hint=hint)
        head = kind.__name__.removeprefix("AutoModel")
        is_same_task = (
            architecture.endswith(head) and {str(name)[:6].lower() for name in config.id2label.values()} != NLI_LABELS
        )
        if is_same_task and config.num_labels != len(labels):
            have = ", ".join(map(str, config.id2label.values()))
            classes = f"a classifier with {config.num_labels} classes ({have})"
            problem = f"these weights are {classes}, and {len(labels)} are needed"
            raise UserError(
                problem, place=weights, hint="start from an encoder, or from a trained model of the same kind"
            )
        config.num_labels = len(labels)
        config.id2label = dict(enumerate(labels))
        config.label2id = {label: index for index, label in enumerate(labels)}
        override(config, (*DROPOUTS, *ATTENTION_DROPOUTS), dropout)
        override(config, ATTENTION_DROPOUTS, attention_dropout)
        torch.manual_seed(seed)
        if "For" not in architecture or is_same_task or builds_empty():
            return load_model(kind, folder, config=config, head_may_be_new="For" not in architecture)
        check_size(kind, config, folder)
        # The head of another task may have the same name and shape, and must not be used.
        model = kind.from_config(config).float()
        encoder = load_model(AutoModel, folder, head_may_be_new=True)
        missing = model.base_model.load_state_dict(encoder.state_dict(), strict=False).missing_keys
        assert not missing, f"an encoder without {missing}"
        loaded = {f"{model.base_model_prefix}.{name}" for name in encoder.state_dict()}
        log_new_tensors(model.state_dict().keys() - loaded, folder)
        return model


def find_head(model: Any) -> torch.nn.Linear:
    """Finds the last layer of a classifier, which computes its logits."""
    layers = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    return [layer for layer in layers if layer.out_features == model.config.num_labels][-1]


@torch.no_grad()
def rescale_head(model: Any, slope: float, bias: float) -> None:
    """Changes the head of a classifier of two classes: its log-odds become `slope * log-odds + bias`."""
    head = find_head(model)
    head.weight.mul_(slope)
    head.bias.mul_(slope).add_(torch.tensor([-bias / 2, bias / 2], dtype=head.bias.dtype, device=head.bias.device))


def longest_sequence(model: Any) -> int | None:
    """Returns the number of learnt positions of the encoder; None without learnt positions."""
    positions = getattr(getattr(model.base_model, "embeddings", None), "position_embeddings", None)
    if not isinstance(positions, torch.nn.Embedding):
        return None
    return int(positions.num_embeddings) - first_position(model)
