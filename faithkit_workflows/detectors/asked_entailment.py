"""Entailment by an encoder-decoder that follows instructions (Flan-T5): it is asked, and its answer's probability read.

    p(answer) = softmax over (yes, unknown, no) of log p(tokens of the answer | premise, hypothesis, question)

Nothing is generated: the three answers are given to the decoder, so a pair costs one reading of its question. Such
models know NLI from their instructions, where a classifier of NLI needs weights of its own. flan-t5-small, 77M, orders
SNLI's dev pairs at 92 points of AUROC and ConjNLI's at 74, but RAGTruth's long answers at 50 (EXPERIMENTS.md, A
Flan-T5 that is asked); Flan's instructions have SNLI's, MultiNLI's and ANLI's training parts among them, so these are
not left out.

| Relative               | Use it for                                                                   |
|------------------------|------------------------------------------------------------------------------|
| `faithkit_workflows.detectors.entailment` | loads this, a classifier of NLI or a critic, by what a name says |
| `judge.judge`          | a verdict in words, with spans and reasons, of a model that was trained to   |
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from data_modules.encoding.tokens import single_template, tokenize
from faithkit.entailment import CONTRADICTION, ENTAILMENT, NEUTRAL
from faithkit.sentences import best_sentences
from faithkit.training.batching import plan_batches

ANSWERS = {ENTAILMENT: "yes", NEUTRAL: "unknown", CONTRADICTION: "no"}
QUESTION = "Is the hypothesis entailed by the premise? yes, no, or unknown"
MAX_WORDS = 80  # of a longer premise the sentences most like the hypothesis are read
MAX_TOKENS = 512  # of a question; a premise loses its end first, a hypothesis what is behind half of them
CPU_BATCH_TOKENS, GPU_BATCH_TOKENS = 1024, 16_384
IGNORED = -100  # a label that transformers leaves out


class AskedEntailment:
    """Asks an encoder-decoder whether a premise entails a hypothesis.

    Args:
        model: An encoder-decoder of transformers with a language-model head.
        batch_tokens: Tokens of a batch, padding counted; None takes what suits the device. Changes the speed, not the
            figures.
    """

    def __init__(self, model: Any, tokenizer: Any, *, batch_tokens: int | None = None):
        self.model, self.tokenizer = model, tokenizer
        self.batch_tokens = batch_tokens or (CPU_BATCH_TOKENS if model.device.type == "cpu" else GPU_BATCH_TOKENS)
        answers = [tokenizer(ANSWERS[column]).input_ids for column in sorted(ANSWERS)]
        self.answers = torch.full((len(answers), max(map(len, answers))), IGNORED, device=model.device)
        for row, ids in enumerate(answers):
            self.answers[row, : len(ids)] = torch.tensor(ids)

    def entailment(self, premises: Sequence[str], hypotheses: Sequence[str]) -> NDArray[np.float64]:
        asked = self.questions(premises, hypotheses)
        found = np.zeros((len(asked), len(ANSWERS)))
        lengths = np.array([len(ids) for ids in asked], np.int32)
        for batch in plan_batches(lengths, None, self.batch_tokens, None) if asked else ():
            found[batch] = self._answers([asked[row] for row in batch])
        return found

    def questions(self, premises: Sequence[str], hypotheses: Sequence[str]) -> list[list[int]]:
        """Makes the tokens of each pair's question, `MAX_TOKENS` at most."""
        pairs = list(zip(premises, hypotheses, strict=True))
        known = tokenize(self.tokenizer, [f"Premise: {best_sentences(*pair, MAX_WORDS)}" for pair in pairs])
        said = tokenize(self.tokenizer, [f"Hypothesis: {hypothesis}" for _, hypothesis in pairs])
        prefix, suffix = single_template(self.tokenizer)
        question = [*self.tokenizer(QUESTION, add_special_tokens=False).input_ids, *suffix]
        room = MAX_TOKENS - len(prefix) - len(question)
        asked = []
        for row in range(len(pairs)):
            hypothesis = said.row(row)[: max(room // 2, room - len(known.row(row)))].tolist()
            asked.append([*prefix, *known.row(row)[: room - len(hypothesis)].tolist(), *hypothesis, *question])
        return asked

    @torch.inference_mode()
    def _answers(self, asked: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        """Computes the probability of each answer to each question [questions, answers]."""
        device, num_answers = self.model.device, len(self.answers)
        shape = (len(asked), max(map(len, asked)))
        ids, mask = torch.full(shape, self.tokenizer.pad_token_id), torch.zeros(shape, dtype=torch.long)
        for row, question in enumerate(asked):
            ids[row, : len(question)], mask[row, : len(question)] = torch.tensor(question), 1
        ids, mask = ids.to(device), mask.to(device)
        states = self.model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
        labels = self.answers.repeat(len(asked), 1)  # [questions * answers, tokens]
        logits = self.model(
            encoder_outputs=(states.repeat_interleave(num_answers, 0),),
            attention_mask=mask.repeat_interleave(num_answers, 0),
            decoder_input_ids=self.model.prepare_decoder_input_ids_from_labels(labels=labels),
        ).logits
        each = logits.float().log_softmax(-1).gather(2, labels.clamp(min=0)[..., None])[..., 0]
        total = (each * (labels != IGNORED)).sum(1).view(len(asked), num_answers)
        return total.double().softmax(-1).cpu().numpy()
