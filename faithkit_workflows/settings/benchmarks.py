"""The block `benchmark` of evaluate.py: a detector's, one of generated responses, domains, or the transfer table."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag, model_validator

from faithkit.settings.types import Block, Count, Hint, OneOf, OpenBlock, PathText, Switch, Text
from faithkit.training.options import Aim
from faithkit_workflows.settings.data import FittingSet, NumRows, OnBadRow, Split
from faithkit_workflows.settings.datasets import OWN, no_path
from faithkit_workflows.settings.domains import Domains
from faithkit_workflows.settings.protocols import PROTOCOLS, Comparative, MetaJudging, Options, Rates

BASELINES = ("gold", "copy")  # as in faithkit.metrics.responses.report, without torch
STRATEGIES = ("random", "fewest", "none", "fewest_by_score", "none_by_score")
RESPONSES = "responses"  # the task of a benchmark that scores what generators write


class BertScore(Block):
    """`benchmark.bert_score`: its encoder, and how many of its layers."""

    encoder: Text | None
    num_layers: Annotated[Count | None, Hint("use 1 or more, or null for all layers")]
    baseline: Annotated[float | None, Field(gt=-1, lt=1), Hint("use a number below 1, or null")] = None


class Detection(OpenBlock):
    """A benchmark of a detector, and RAGTruth's analysis and suppression, which have keys of their own."""

    name: Text
    target: Text | None = Field(None, alias="_target_")
    dataset: Text | None = None
    path: PathText
    split: Split
    num_rows: NumRows
    on_bad_row: OnBadRow
    options: Options
    fit_on: list[FittingSet] = Field(default_factory=list)
    by: Annotated[list[Text], Hint("use a list of columns, [language,customer]")] = Field(default_factory=list)
    bert_score: BertScore | None = None
    plots: Switch = False
    groups: dict[str, list[Text] | None] | None = None
    strategies: Annotated[list[Annotated[str, OneOf(STRATEGIES)]], Field(min_length=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _own_rows_have_a_path(cls, block: Any) -> Any:
        if isinstance(block, Mapping) and block.get("path") is None and not block.get("_target_"):
            name = block.get("dataset") or block.get("name")
            if isinstance(name, str) and name in OWN:
                raise no_path("benchmark", name)
        return block


class Q2(Block):
    """`benchmark.q2`: the models of Q2."""

    candidates: Text | None
    questions: Text | None
    question_template: Text
    answers: Text | None


class ResponseSet(OpenBlock):
    """A dataset of `benchmark.datasets`, with what it sets of its own."""

    path: PathText
    predictions: PathText | None = None
    against: PathText | None = None
    split: Split = None
    num_rows: NumRows = None


class Responses(Block):
    """A benchmark of generated responses."""

    name: Text
    task: Annotated[str, OneOf((RESPONSES,))]
    target: Text | None = Field(None, alias="_target_")
    dataset: Text | None = None
    path: PathText | None = None
    split: Split
    num_rows: NumRows
    on_bad_row: OnBadRow
    options: Options
    predictions: PathText | None
    against: PathText | None
    incomplete: Switch
    baselines: list[Annotated[str, OneOf(BASELINES)]]
    critic: PathText | None
    judges: list[Text] = Field(default_factory=list)
    judge_labels: list[FittingSet] = Field(default_factory=list)
    bert_score: BertScore | None
    nli: Text | None
    q2: Q2 | None
    official: Switch = False
    datasets: dict[str, ResponseSet] | None = None


class TransferTraining(Block):
    """A critic of the transfer table: trained on `path`, or given as `checkpoint`."""

    path: PathText
    checkpoint: PathText | None


class TransferTest(Block):
    """A test set of the transfer table."""

    path: PathText
    split: Split
    num_rows: NumRows
    on_bad_row: OnBadRow
    options: Options


class Transfer(Block):
    """`benchmark=transfer`."""

    name: Text
    train: Annotated[dict[str, TransferTraining], Field(min_length=1)]
    test: Annotated[dict[str, TransferTest], Field(min_length=1)]
    threshold_aim: Aim | None = None
    validation_fraction: Annotated[float | None, Field(gt=0, lt=1), Hint("use a share above 0 and below 1")] = None
    overrides: list[Text]


OF_TASK = {RESPONSES: "<responses>"} | {task: f"<{task}>" for task in PROTOCOLS}


def _kind(block: Any) -> str:
    if not isinstance(block, dict):
        return "<detection>"
    if (task := block.get("task")) is not None:
        return OF_TASK.get(str(task), OF_TASK[RESPONSES])  # which refuses an unknown one
    return {"transfer": "<transfer>", "domains": "<domains>"}.get(str(block.get("name")), "<detection>")


AnyBenchmark = Annotated[
    Annotated[Detection, Tag("<detection>")]
    | Annotated[Responses, Tag("<responses>")]
    | Annotated[Comparative, Tag("<comparative>")]
    | Annotated[MetaJudging, Tag("<meta_judging>")]
    | Annotated[Rates, Tag("<rates>")]
    | Annotated[Transfer, Tag("<transfer>")]
    | Annotated[Domains, Tag("<domains>")],
    Discriminator(_kind),
]
