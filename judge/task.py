"""The training of judges: how examples are encoded, the Lightning module, and the task of `train.py`."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from data_modules.data_module import DataModule
from data_modules.encoding.batching import Batches
from data_modules.encoding.encoder import (
    ENCODING_VERSION,
    NO_LABEL,
    Columns,
    Encoder,
    Ragged,
    Subset,
    branched_batch,
    causal_batch,
)
from data_modules.encoding.tokens import fingerprint_of, load_tokenizer
from faithkit.calibration import ScoreCalibration, logit
from faithkit.errors import UserError, shorten
from faithkit.fast import accelerate_training, is_enabled
from faithkit.files.model_folder import read_sidecar, write_sealed
from faithkit.files.run_folder import RunFolder
from faithkit.inference.local_text import LocalTextEngine
from faithkit.inference.messages import MessageTokens
from faithkit.inference.text import Prompt
from faithkit.inference.transformers_engine import TransformersEngine
from faithkit.metrics.classification import score_validation
from faithkit.provenance.row_keys import group_hash
from faithkit.provenance.used_model import describe_model, read_seen
from faithkit.records import HALLUCINATED, LABELS, Example, Prediction
from faithkit.reports.write_reports import Reports
from faithkit.training.checkpoints import best_weights, load_weights, model_state
from faithkit.training.language_model import (
    language_model_figures,
    reply_statistics,
    run_model,
    token_losses,
    token_mean,
)
from faithkit.training.module import TrainingModule
from faithkit.training.task import Calibrated, FinishedTraining, TestResults, report_detector
from faithkit.training.training_options import OptimizerOptions, read_options
from faithkit.weights.adapters import NAME, add_adapters, base_name, write_adapters
from faithkit.weights.load import (
    check_end_token,
    check_places,
    check_vocabulary,
    filler_token,
    load_config,
    load_model,
    override,
)
from faithkit.weights.resolve import loading, resolve
from judge.judge import Judge, Settings
from judge.options import VERDICT, AskOptions, JudgeOptions
from judge.prompt import PromptTemplate, read_prompt
from judge.reply import ASKINGS, target_text

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


DROPOUTS = ("resid_pdrop", "embd_pdrop", "attn_pdrop", "attention_dropout", "dropout")  # config keys, by family


class JudgeModule(TrainingModule):
    """Trains a judge by the mean cross-entropy of the replies' tokens, without loss on prompts.

    Args:
        model: A causal model of transformers.
        adapters: The adapters, if only these are trained.
        verdict: The position of the verdict's token in a reply, and this token for a hallucinated and for a faithful
            response (`MessageTokens.choices`).
    """

    main_metric = "macro_f1"

    def __init__(
        self,
        model: Any,
        optimizer: OptimizerOptions,
        *,
        verdict: tuple[int, int, int],
        adapters: Adapters | None,
        num_steps: int,
        dataset: str,
        seed: int,
    ):
        super().__init__(optimizer, _compute_metrics, num_steps=num_steps, dataset=dataset, seed=seed)
        self.model, self.verdict, self.adapters = model, verdict, adapters
        self.strict_loading = adapters is None  # checkpoints of adapters are partial; `check_fits` compares them

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        losses = token_losses(run_model(self.model, batch).logits, batch["target"])
        real = (batch["index"] >= 0)[batch["target_row"]]
        loss = token_mean(losses, real, self)
        self.log("train/loss", loss.detach(), prog_bar=True)
        return loss

    @torch.no_grad()  # sharded weights need version counters, which inference mode leaves out
    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        logits = run_model(self.model, batch).logits
        rows = torch.arange(len(batch["index"]), device=logits.device)
        # The position of the verdict is relative to the row's first target.
        place, *tokens = self.verdict
        verdict_logits = logits[0, torch.searchsorted(batch["target_row"].contiguous(), rows) + place][
            :, tokens
        ].double()
        columns = [
            reply_statistics(logits, batch),
            (verdict_logits[:, :1] - verdict_logits[:, 1:]),
            batch["label"][:, None].double(),
        ]
        self.validation.update(batch["index"], torch.cat(columns, dim=1))


def _compute_metrics(numbers: NDArray[np.int64], values: NDArray[np.float64]) -> Mapping[str, float]:
    """Computes the metrics of rows with the values of `reply_statistics`, the verdict's log-odds, and the label."""
    verdicts = score_validation(ScoreCalibration().scores(values[:, 3]), values[:, 4])
    verdicts["verdict_loss"] = verdicts.pop("loss")
    return {**verdicts, **language_model_figures(numbers, values[:, :3])}


@dataclass(frozen=True, kw_only=True)
class JudgementEncoder(Encoder):
    """Encodes a prompt with its reply, as in inference.

    Args:
        ask: The kind of reply.
        max_length: Tokens of both; the oldest turns are removed if they do not fit, knowledge and response never.
        packed: Packs sequences without padding (`faithkit.fast.Packing`).
        share_beginnings: Batches rows with the same knowledge and history together, and encodes this prefix once.
    """

    tokens: MessageTokens
    template: PromptTemplate
    ask: str
    max_length: int
    packed: bool = True
    share_beginnings: bool = False

    @property
    def shares_beginnings(self) -> bool:
        return self.packed and self.share_beginnings

    def fingerprint(self) -> str:
        settings = f"{self.template.fingerprint}:{self.tokens.has_template}:{self.ask}:{self.max_length}"
        return f"judgements:families:{ENCODING_VERSION}:{settings}:{fingerprint_of(self.tokens.tokenizer)}"

    def encode(self, examples: Sequence[Example], counts: Counter[str]) -> Columns:
        """Makes the columns context (the prompt), response (the reply with eos), length, label and family."""
        replies = self.tokens.answers([target_text(example, self.ask) for example in examples])
        prompts = self.tokens.prompts([self.template.messages(example) for example in examples])
        for place, (example, reply) in enumerate(zip(examples, replies, strict=True)):
            room = self.max_length - len(reply)
            if len(prompts[place]) <= room:
                continue
            counts["history cut: rows"] += 1
            for first in range(1, len(example.history) + 1):  # as many of the newest turns as fit
                shorter = replace(example, history=example.history[first:])
                [prompts[place]] = self.tokens.prompts([self.template.messages(shorter)])
                if len(prompts[place]) <= room:
                    counts["history cut: turns"] += first
                    break
            else:
                [ids] = self.tokens.prompts([self.template.messages(replace(example, history=()))])
                needed = len(reply) + len(ids)
                problem = f"example {shorten(example.id)}: prompt and reply take {needed} tokens without any history"
                hint = f"set model.max_length={needed} or more (it is {self.max_length})"
                raise UserError(problem, place=f"{example.source}/{example.split}", hint=hint)
        context, response = (Ragged.from_lists([ids.tolist() for ids in rows]) for rows in (prompts, replies))
        labels = [NO_LABEL if e.label is None else LABELS.index(e.label) for e in examples]
        # A family has the same prompt before the response.
        parts = [[e.knowledge, *(f"{turn.speaker}\0{turn.text}" for turn in e.history)] for e in examples]
        families = [group_hash("\0\0".join(texts)) for texts in parts]
        return {
            "context": context,
            "response": response,
            "length": (context.lengths + response.lengths).astype(np.int32),
            "label": np.array(labels, np.int8),
            "family": np.array(families, np.uint64),
        }

    def collate(self, columns: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Makes the arrays of a batch: those of `causal_batch`, and the labels."""
        context, response, family = (columns[name] for name in ("context", "response", "family"))
        if self.shares_beginnings and len(np.unique(family)) < len(family):
            batch = branched_batch(context, response, family)
        else:
            pad_id = filler_token(self.tokens.tokenizer)
            batch = causal_batch(context, response, pad_id=pad_id, packed=self.packed)
        return batch | {"label": columns["label"]}


class JudgeTask:
    """Trains a judge: `model=judge`.

    Args:
        optimizer: The block `optimizer` (`OptimizerOptions`).
        model: The block `model`; the fields of `JudgeOptions` are read.
    """

    def __init__(self, *, optimizer: Mapping[str, Any], model: Mapping[str, Any]):
        from transformers import AutoModelForCausalLM

        self.model_class: Any = AutoModelForCausalLM
        self.options = read_options(JudgeOptions, model)
        self.optimizer = OptimizerOptions(**optimizer)
        with loading(self.options.weights) as source:
            self.tokenizer = load_tokenizer(source)
        check_end_token(self.tokenizer, self.options.weights)
        template = read_prompt(self.options.ask, self.options.prompts)
        if template.header.reply is not None:
            hint = "delete reply, and its words and keys, from the prompt's header"
            problem = f"a judge learns the replies of model.ask={self.options.ask}"
            raise UserError(problem, place=self.options.prompts, hint=hint)
        self.encoder = JudgementEncoder(
            tokens=MessageTokens(self.tokenizer),
            template=template,
            ask=self.options.ask,
            max_length=self.options.max_length,
            packed=self.options.packed and is_enabled(),
            share_beginnings=self.options.share_beginnings,
        )
        choices = ASKINGS[self.options.ask].choices
        assert choices is not None, "a trainable reply begins with its verdict"
        # The beginning of a reply, and the tokens that follow it in a hallucinated and in a faithful one.
        self.begin, self.verdict = self.encoder.tokens.choices(choices)

    def module(self, *, num_steps: int, dataset: str, seed: int) -> JudgeModule:
        """Builds the module to train."""
        model = self._load_model()
        if self.options.gradient_checkpointing:
            model.gradient_checkpointing_enable()
        hallucinated, faithful = self.verdict
        verdict, adapters = (len(self.begin), hallucinated, faithful), None
        if self.options.lora_rank:
            base = describe_model(resolve(self.options.weights)).weights
            adapters = Adapters(base, model.peft_config[NAME], self._load_model)
        about: dict[str, Any] = {"num_steps": num_steps, "dataset": dataset, "seed": seed}
        return JudgeModule(model, self.optimizer, verdict=verdict, adapters=adapters, **about)

    def _load_model(self) -> Any:
        """Loads the initial model in fp32, with new adapters if only these are trained.

        Raises:
            UserError: It is an encoder-decoder, its positions are too few, or it cannot be found.
        """
        from transformers import AutoConfig

        options = self.options
        with loading(options.weights) as source:
            config = load_config(AutoConfig, source)
            check_places(config, options.weights, options.max_length, "model.max_length")
            override(config, DROPOUTS, options.dropout)
            model = load_model(self.model_class, source, config=config)
            check_vocabulary(model, self.tokenizer, source)
        accelerate_training(model, packed=self.encoder.packed)
        if options.lora_rank is None:
            return model
        return add_adapters(
            model,
            rank=options.lora_rank,
            alpha=options.lora_alpha,
            dropout=options.lora_dropout,
            target_modules=options.lora_modules,
            base=base_name(options.weights),
        )

    def calibrate(self, training: FinishedTraining[DataModule], model: Any) -> Calibrated[Judge]:
        """Fits temperature and threshold on the verdicts' probabilities of the validation rows."""
        model.set_attn_implementation("sdpa")
        tokens, options = self.encoder.tokens, self.options
        eos_id, pad_id = self.tokenizer.eos_token_id, filler_token(self.tokenizer)
        engine = TransformersEngine(model, eos_id=eos_id, pad_id=pad_id)
        window = check_places(model.config, options.weights, None)
        local = LocalTextEngine(engine, tokens, window=window, identity="in training")
        judge = Judge(local, AskOptions(ask=options.ask), template=self.encoder.template)
        rows = Batches(training.data.subsets["validation"], self.encoder)

        def compute_odds(part: NDArray[np.int64]) -> list[float]:
            """Computes the verdicts' log-odds from the cached prompts."""
            contexts = rows.columns(part)["context"]
            assert isinstance(contexts, Ragged)
            prompts = [
                Prompt(str(place), np.append(contexts.row(place), self.begin).astype(np.int32))
                for place in range(len(part))
            ]
            found = dict(engine.next_probabilities(prompts, self.verdict))
            return [float(logit([found[prompt.id][0]])[0]) for prompt in prompts]

        odds = np.array(training.divide_work(len(rows), compute_odds))
        gold = np.array([example.label == HALLUCINATED for example in training.validation], np.int8)
        judge.calibration, fit = ScoreCalibration.fit(odds, gold, options.threshold_aim)
        settings = Settings(
            ask=options.ask,
            template=self.encoder.template,
            max_length=options.max_length,
            calibration=judge.calibration,
            origin=training.origin_with_baselines(training.validation),
        )
        return Calibrated(predictor=judge, sidecar=settings.to_sidecar(), examples=training.validation, fit=fit)

    def predict(self, training: FinishedTraining[DataModule], judge: Judge, subset: Subset) -> list[Prediction]:
        """Judges a test subset as in inference; each process judges its part."""
        examples = subset.examples()

        def judge_part(part: NDArray[np.int64]) -> list[Prediction]:
            progress = training.trainer.is_global_zero and self.options.ask != VERDICT
            return list(judge.predict_examples([examples[i] for i in part], progress=progress))

        return training.divide_work(len(examples), judge_part)

    def report(
        self,
        training: FinishedTraining[DataModule],
        calibrated: Calibrated[Judge],
        tests: TestResults[Prediction],
    ) -> Reports:
        """Writes the predictions, and compares them with the labels."""
        return report_detector(training, tests, fitted_on=training.validation, aim=self.options.threshold_aim)
