"""The generator's part of training: its encoder, its module, and what is made of the best checkpoint."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytorch_lightning as pl
from numpy.typing import NDArray

from data_modules.batches import Batches
from data_modules.data_module import DataModule
from data_modules.encoding.pairs import Encoder
from data_modules.encoding.tokens import load_tokenizer
from data_modules.encoding.turn_layout import TurnLayout, add_markers
from data_modules.encoding.turns import TurnEncoder
from data_modules.splits import Subset
from faithkit.errors import UserError
from faithkit.evaluation.reports.perplexity import perplexity_report
from faithkit.evaluation.reports.run import Reports
from faithkit.files.model_folder import write_folder
from faithkit.files.run_folder import RunFolder
from faithkit.inference.decoding import Decoding, Prompt
from faithkit.inference.transformers_engine import TransformersEngine
from faithkit.packing import use_packed_attention
from faithkit.records import Example
from faithkit.training.batching import plan_batches
from faithkit.training.checkpoints import load_best
from faithkit.training.distributed import gather_rows
from faithkit.weights.resolve import resolve
from generation.control.ctrl import Ctrl
from generation.control.encoder import ControlEncoder
from generation.control_names import control_tokens
from generation.module import GeneratorModule, row_statistics
from generation.objectives.objective import Objective
from generation.settings import Settings
from generation.weights import ARCHITECTURES, check_length, load_generator, starts_with


class GeneratorTask:
    """Builds what training needs and finishes it; one for each `model=` that writes.

    Args:
        architecture: A key of `generation.weights.ARCHITECTURES`.
        weights: A folder (of a generator of ours too), hub name or local name.
        objective: What is learnt from.
        control: What stands in front of everything; None for nothing.
        max_length: Tokens that the model reads: see `data_modules.encoding.turn_layout`.
        max_response_length: Tokens of a response.
        max_history: Turns at most; None for all that fit.
        packed: Causal models: sequences without padding.
        optimizer: lr, weight_decay, warmup, schedule, floor, layer_decay, head_lr.
    """

    def __init__(
        self,
        *,
        architecture: str,
        weights: str,
        objective: Objective,
        control: Ctrl | None,
        max_length: int,
        max_response_length: int,
        max_history: int | None,
        packed: bool,
        dropout: float | None,
        attention_dropout: float | None,
        gradient_checkpointing: bool,
        optimizer: Mapping[str, Any],
    ):
        self.architecture, self.weights, self.objective = architecture, weights, objective
        self.dropouts = {"dropout": dropout, "attention_dropout": attention_dropout}
        self.gradient_checkpointing, self.optimizer = gradient_checkpointing, dict(optimizer)
        layout = TurnLayout(
            kind=ARCHITECTURES[architecture].kind,
            max_length=max_length,
            max_response_length=max_response_length,
            max_history=max_history,
            control=control.groups if control else (),
        )
        self.tokenizer = load_tokenizer(resolve(weights))
        self.new_tokens = add_markers(self.tokenizer, layout)
        self.turns = TurnEncoder(self.tokenizer, layout, packed=packed)
        encoder = objective.encoder(self.turns, self.turns)
        self.control = ControlEncoder(encoder, self.turns, control) if control else None
        self.encoder: Encoder = self.control or encoder

    def module(self, *, num_steps: int, dataset: str, seed: int) -> GeneratorModule:
        """The module to train."""
        model = load_generator(
            self.weights, self.architecture, tokenizer=self.tokenizer, new_tokens=self.new_tokens, **self.dropouts
        )
        check_length(model, self.turns.layout, self.weights)
        starts_with(model, self.tokenizer, self.turns.decoder_prefix)
        if self.turns.is_packed and not use_packed_attention(model):
            name = type(model).__name__
            raise UserError(f"{name} has an attention of its own and cannot be packed", hint="set model.packed=false")
        if self.gradient_checkpointing:
            model.gradient_checkpointing_enable()
        return GeneratorModule(model, self.objective, num_steps=num_steps, dataset=dataset, seed=seed, **self.optimizer)

    def finish(
        self,
        trainer: pl.Trainer,
        module: GeneratorModule,
        data: DataModule,
        run: RunFolder,
        origin: Mapping[str, Any],
        *,
        num_resamples: int,
        num_examples: int,
    ) -> tuple[Reports, dict[str, Any]]:
        """Measures the best checkpoint's perplexity on the test sets, lets it answer a few turns, writes hf/.

        Returns:
            For each test set its reports, from the first process alone; and what was fitted on validation: nothing.
        """
        model = load_best(module, run, ARCHITECTURES[self.architecture].model_class)
        model = model.to(trainer.strategy.root_device).eval()
        scored = {
            subset.name: (subset.examples(), shared_statistics(model, self.encoder, subset, data, trainer))
            for subset in data.subsets["test"]
            if len(subset)
        }
        if not trainer.is_global_zero:
            return {}, {}
        settings = Settings(
            layout=self.turns.layout,
            architecture=self.architecture,
            thresholds=self.control.thresholds if self.control else {},
            origin=dict(origin),
        )
        write_folder(run.hf, model, self.tokenizer, settings.to_sidecar())
        model.set_attn_implementation("sdpa")
        reports: Reports = {subset.name: [] for subset in data.subsets["test"]}
        for name, (examples, rows) in scored.items():
            shown = examples[:: max(1, len(examples) // num_examples)][:num_examples] if num_examples else []
            reports[name] = [
                perplexity_report(
                    examples, rows, self.answers(model, shown), title=f"test/{name}", num_resamples=num_resamples
                )
            ]
        return reports, {}

    def answers(self, model: Any, examples: Sequence[Example]) -> dict[str, str]:
        """What the model answers, by greedy decoding with the wanted control tokens, by the examples' ids."""
        if not examples:
            return {}
        layout, tokenizer = self.turns.layout, self.tokenizer
        wanted = control_tokens(layout.control)
        engine = TransformersEngine(
            model,
            eos_id=tokenizer.eos_token_id,
            pad_id=tokenizer.pad_token_id,
            decoder_prefix=self.turns.decoder_prefix,
        )
        contexts = self.turns.contexts(examples, Counter(), [wanted] * len(examples))
        prompts = [Prompt(example.id, contexts.row(place)) for place, example in enumerate(examples)]
        said = engine.generate(prompts, Decoding(max_new_tokens=layout.max_response_length))
        return {answer.id: tokenizer.decode(answer.ids, skip_special_tokens=True).strip() for answer in said}


def shared_statistics(
    model: Any, encoder: Encoder, subset: Subset, data: DataModule, trainer: pl.Trainer
) -> NDArray[np.float64]:
    """`row_statistics` of a subset's rows, in their order; each process works on its share of the batches."""
    batches = Batches([subset], encoder)
    plan = plan_batches(batches.lengths(), None, data.eval_max_tokens, None)[trainer.global_rank :: trainer.world_size]
    indices, values = [], []
    for rows in plan:
        batch = {name: column.to(model.device) for name, column in batches[rows, len(rows)].items()}
        indices.append(batch["index"].cpu().numpy())
        values.append(row_statistics(model, batch))
    index, found = gather_rows(indices, values)
    assert len(index) == len(subset), "every example is scored once"
    return found
