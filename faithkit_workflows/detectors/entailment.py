"""Entailment by a critic, an NLI classifier or an instruction-tuned encoder-decoder (Flan-T5), as three probabilities.

A critic does not distinguish contradicted from unsupported responses: hallucinated is neutral, and nothing is a
contradiction. The same holds for NLI models with two classes.

An encoder-decoder is prompted for one of three answers:

    p(answer) = softmax over (yes, unknown, no) of log p(tokens of the answer | premise, hypothesis, question)

Nothing is generated: the decoder scores the three answers, so a pair costs one pass over its question. flan-t5-small
(77M parameters) has AUROC 92 on SNLI's dev pairs, 74 on ConjNLI and 50 on RAGTruth's long answers. Flan's instructions
contain the training splits of SNLI, MultiNLI and ANLI, so these datasets are not unseen.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from critic.runtime import default_batch_tokens, load_checkpoint
from critic.sequence.scorer import PAIRS_AT_ONCE, Critic, window_logits
from critic.sequence.settings import Settings
from data_modules.encoding.pair_encoder import PairEncoder
from data_modules.encoding.tokens import single_template, tokenize
from faithkit.calibration import apply_temperature, logit
from faithkit.detector import CONTRADICTION, CRITIC, ENTAILMENT, NEUTRAL, Entailment
from faithkit.errors import UserError
from faithkit.fast import accelerate, plan_batches, to_bf16, wants_bf16
from faithkit.files.model_folder import SIDECAR
from faithkit.weights.load import load_pretrained, read_config
from faithkit.weights.resolve import fetch_folder, loading
from faithkit.words import best_sentences

CRITIC_LABELS = {"faithful", "hallucinated"}
# Beginnings of NLI labels in lower case; with two classes the second one is "not entailment".
COLUMNS = {"entail": ENTAILMENT, "neutral": NEUTRAL, "contra": CONTRADICTION, "not": NEUTRAL, "non": NEUTRAL}
ANSWERS = {ENTAILMENT: "yes", NEUTRAL: "unknown", CONTRADICTION: "no"}
QUESTION = "Is the hypothesis entailed by the premise? yes, no, or unknown"
MAX_TOKENS = 512  # of a question; the end of the premise is cut first, then the second half of the hypothesis
SEQ2SEQ_CPU_BATCH_TOKENS, SEQ2SEQ_GPU_BATCH_TOKENS = 1024, 16_384
IGNORED_LABEL = -100  # transformers leaves it out of the loss


def load_entailment(
    checkpoint: str, *, device: str | None = None, precision: str = "32-true", batch_tokens: int | None = None
) -> Entailment:
    """Loads a critic (a run, an hf/ folder, a hub name), an NLI model or an encoder-decoder, recognised by config.json.

    Args:
        device: None takes the GPU where there is one.
        precision: bf16, or auto: bf16 where the hardware supports it; anything else is fp32.

    Raises:
        UserError: It cannot be loaded, or has other labels.
    """
    folder, names = fetch_folder(checkpoint), None
    if not folder or not (folder / SIDECAR).exists():
        with loading(str(folder or checkpoint)) as source:
            names = read_config(source).get("architectures")
    if isinstance(names, list) and any(str(name).endswith("ForConditionalGeneration") for name in names):
        model, tokenizer, _ = load_pretrained("AutoModelForSeq2SeqLM", checkpoint, device=device, precision=precision)
        return Seq2SeqEntailment(model, tokenizer, batch_tokens=batch_tokens)
    loaded = load_checkpoint(checkpoint, "AutoModelForSequenceClassification", CRITIC, Settings.from_sidecar, device)
    if wants_bf16(precision, loaded.device):
        to_bf16(loaded.model)
    accelerate(loaded.model)
    labels = [str(loaded.model.config.id2label[i]).lower() for i in range(loaded.model.config.num_labels)]
    if set(labels) == CRITIC_LABELS:
        return CriticEntailment(Critic.of(loaded, checkpoint, batch_tokens=batch_tokens))
    columns = [next((c for start, c in COLUMNS.items() if label.startswith(start)), None) for label in labels]
    found = [column for column in columns if column is not None]
    if len(found) < len(labels) or len(set(found)) < len(found) or ENTAILMENT not in found:
        hint = "give a critic, or a model with the labels entailment, neutral, contradiction"
        raise UserError(f"not an NLI model: its labels are {', '.join(labels)}", place=checkpoint, hint=hint)
    longest = min(512, getattr(loaded.model.config, "max_position_embeddings", 512) - 2)
    encoder = PairEncoder(tokenizer=loaded.tokenizer, max_length=longest)
    return NliModel(loaded.model, encoder, found, batch_tokens=batch_tokens or default_batch_tokens(loaded.model))


@dataclass(eq=False)
class CriticEntailment:
    """A critic as an NLI model: faithful is entailment, hallucinated is neutral.

    Log-odds are shifted by the critic's threshold, so that the more probable class is the critic's label.
    """

    critic: Critic

    def entailment(self, premises: Sequence[str], hypotheses: Sequence[str]) -> NDArray[np.float64]:
        scores = self.critic.probabilities(premises, hypotheses)
        hallucinated = apply_temperature(logit(scores) - logit(self.critic.calibration.threshold), 1.0)
        found = np.zeros((len(scores), 3))
        found[:, ENTAILMENT], found[:, NEUTRAL] = 1 - hallucinated, hallucinated
        return found


@dataclass(eq=False)
class NliModel:
    """An NLI classifier. Over a long premise the window with the highest P(entailment) counts.

    Args:
        columns: The column, of three, of each of its classes.
    """

    model: Any
    encoder: PairEncoder
    columns: Sequence[int]
    batch_tokens: int

    def entailment(self, premises: Sequence[str], hypotheses: Sequence[str]) -> NDArray[np.float64]:
        chunks = [np.zeros((0, 3))]
        for begin in range(0, len(premises), PAIRS_AT_ONCE):
            chunk = slice(begin, begin + PAIRS_AT_ONCE)
            columns = self.encoder.encode_texts(premises[chunk], hypotheses[chunk])
            logits, owner = window_logits(self.model, self.encoder, columns, self.batch_tokens)
            windows = np.zeros((len(logits), 3))
            windows[:, self.columns] = torch.from_numpy(logits).double().softmax(-1).numpy()
            order = np.lexsort((windows[:, ENTAILMENT], owner))  # the window with the highest P(entailment) comes last
            last = np.append(np.flatnonzero(np.diff(owner[order])), len(order) - 1)
            chunks.append(windows[order[last]])
        return np.concatenate(chunks)


class Seq2SeqEntailment:
    """Prompts an encoder-decoder for whether a premise entails a hypothesis.

    Args:
        model: An encoder-decoder of transformers with a language-model head.
        batch_tokens: Tokens of a batch, including padding; None chooses by the device. Changes the speed, not the
            results.
    """

    def __init__(self, model: Any, tokenizer: Any, *, batch_tokens: int | None = None):
        self.model, self.tokenizer = model, tokenizer
        default = SEQ2SEQ_CPU_BATCH_TOKENS if model.device.type == "cpu" else SEQ2SEQ_GPU_BATCH_TOKENS
        self.batch_tokens = batch_tokens or default
        answers = [tokenizer(ANSWERS[column]).input_ids for column in sorted(ANSWERS)]
        self.answer_ids = torch.full((len(answers), max(map(len, answers))), IGNORED_LABEL, device=model.device)
        for row, ids in enumerate(answers):
            self.answer_ids[row, : len(ids)] = torch.tensor(ids)

    @torch.inference_mode()
    def entailment(self, premises: Sequence[str], hypotheses: Sequence[str]) -> NDArray[np.float64]:
        questions = self.encode_questions(premises, hypotheses)
        device, num_answers = self.model.device, len(self.answer_ids)
        found = np.zeros((len(questions), num_answers))
        lengths = np.array([len(ids) for ids in questions], np.int32)
        for batch in plan_batches(lengths, None, self.batch_tokens, None) if questions else ():
            shape = (len(batch), int(lengths[batch].max()))
            ids, mask = torch.full(shape, self.tokenizer.pad_token_id), torch.zeros(shape, dtype=torch.long)
            for row, place in enumerate(batch):
                question = questions[place]
                ids[row, : len(question)], mask[row, : len(question)] = torch.tensor(question), 1
            ids, mask = ids.to(device), mask.to(device)
            states = self.model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
            labels = self.answer_ids.repeat(len(batch), 1)  # [questions * answers, tokens]
            logits = self.model(
                encoder_outputs=(states.repeat_interleave(num_answers, 0),),
                attention_mask=mask.repeat_interleave(num_answers, 0),
                decoder_input_ids=self.model.prepare_decoder_input_ids_from_labels(labels=labels),
            ).logits
            token_log_probs = logits.float().log_softmax(-1).gather(2, labels.clamp(min=0)[..., None])[..., 0]
            total = (token_log_probs * (labels != IGNORED_LABEL)).sum(1).view(len(batch), num_answers)
            found[batch] = total.double().softmax(-1).cpu().numpy()
        return found

    def encode_questions(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[list[int]]:
        """Returns the token ids of each pair's question, at most `MAX_TOKENS`."""
        pairs = list(zip(premises, hypotheses, strict=True))
        # Of a premise of more than 80 words the sentences most similar to the hypothesis are read.
        premises = [best_sentences(*pair, 80) for pair in pairs]
        premise_ids = tokenize(self.tokenizer, [f"Premise: {premise}" for premise in premises])
        hypothesis_ids = tokenize(self.tokenizer, [f"Hypothesis: {hypothesis}" for _, hypothesis in pairs])
        prefix, suffix = single_template(self.tokenizer)
        question_ids = [*self.tokenizer(QUESTION, add_special_tokens=False).input_ids, *suffix]
        room = MAX_TOKENS - len(prefix) - len(question_ids)
        questions = []
        for row in range(len(pairs)):
            hypothesis = hypothesis_ids.row(row)[: max(room // 2, room - len(premise_ids.row(row)))].tolist()
            premise = premise_ids.row(row)[: room - len(hypothesis)].tolist()
            questions.append([*prefix, *premise, *hypothesis, *question_ids])
        return questions
