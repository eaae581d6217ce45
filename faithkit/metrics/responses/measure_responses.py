"""Joins responses with their examples, and measures them by every metric that the given models allow."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from faithkit.detector import Detector
from faithkit.errors import UserError
from faithkit.metrics.classification import align_predictions, safe_ratio
from faithkit.metrics.judge_error import JudgeError
from faithkit.metrics.responses.bert_score import BertScore
from faithkit.metrics.responses.ngrams import (
    bleu,
    bleu_counts,
    corpus_bleu,
    distinct_n,
    extractive_fragments,
    knowledge_f1,
    rouge,
)
from faithkit.metrics.responses.official import OfficialMetrics
from faithkit.metrics.responses.q2 import Q2, Q2Scores
from faithkit.records import HALLUCINATED, UNPARSED, Example, Prediction
from faithkit.scores.measures import CRITIC_RATE, RESPONSES, kinds_of, response_measures
from faithkit.statistics.bootstrap import Evaluation, Groups
from faithkit.statistics.metric import MetricKind
from faithkit.statistics.spread import Statistic, Values
from faithkit.words import apostrophe_words


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MetricColumns:
    """All that was measured of the responses to some examples.

    Args:
        columns: The values of each metric by name [N], NaN where it does not apply; its overall value is the mean.
        kinds: What each metric is, those of `corpus` included.
        corpus: Metrics that are no means over examples (BLEU, distinct-n), as functions of weights over groups.
        details: Further fields of each example's line in the scores file, such as Q2's questions.
    """

    groups: Groups
    columns: Mapping[str, Values]
    kinds: Mapping[str, MetricKind]
    corpus: Sequence[Statistic] = ()
    details: Sequence[Mapping[str, Any]] | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if undeclared := [name for name in self.columns if name not in self.kinds]:
            names, table = ", ".join(undeclared), "faithkit/scores/measures.py"
            raise ValueError(f"no kind is declared for {names}: add it to RESPONSES in {table}")

    def evaluation(self) -> Evaluation:
        """Prepares the overall values; n counts the examples that define a metric."""
        counts = {name: int(np.isfinite(column).sum()) for name, column in self.columns.items()}
        defined = {name: column for name, column in self.columns.items() if counts[name]}
        statistics = (defined_means(self.groups, defined), *self.corpus)

        def statistic(weights: Values) -> dict[str, Values]:
            return {name: value for part in statistics for name, value in part(weights).items()}

        undefined = tuple(f"{name} is left out: no example defines it" for name, count in counts.items() if not count)
        notes = (*self.notes, *undefined)
        return Evaluation(groups=self.groups, statistic=statistic, kinds=self.kinds, n=counts, notes=notes)

    def rows(self) -> list[dict[str, Any]]:
        """Lists the values of each example, None if the metric does not apply, with its details."""
        columns = {name: column.tolist() for name, column in self.columns.items()}
        size = len(self.groups.index)
        values = [{n: v[i] if np.isfinite(v[i]) else None for n, v in columns.items()} for i in range(size)]
        details = self.details or [{}] * size
        return [{**row, **detail} for row, detail in zip(values, details, strict=True)]


def defined_means(groups: Groups, columns: Mapping[str, Values]) -> Statistic:
    """Makes a statistic of the means of columns over the rows where they are not NaN."""
    sums = {name: groups.sums(np.nan_to_num(column)) for name, column in columns.items()}
    sizes = {name: groups.sums(np.isfinite(column)) for name, column in columns.items()}

    def statistic(weights: Values) -> dict[str, Values]:
        return {name: safe_ratio(weights @ sums[name], weights @ sizes[name]) for name in columns}

    return statistic


@dataclass(frozen=True, slots=True, eq=False)
class PairedResponses:
    """Examples, a response to each, those of another system if there is one, and notes on what was left out."""

    examples: list[Example]
    texts: list[str]
    against: list[str] | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        examples: Sequence[Example],
        predictions: Mapping[str, Prediction],
        against: Mapping[str, Prediction] | None = None,
        *,
        incomplete: bool = False,
    ) -> "PairedResponses":
        """Joins examples and predictions by id.

        Args:
            incomplete: Leaves out examples without a response and responses without an example, instead of refusing
                them; `against` must answer all that remain.

        Raises:
            UserError: Ids on one side only, or predictions without any response.
        """
        notes: tuple[str, ...] = ()
        kept = [example for example in examples if example.id in predictions]
        # With nothing in common `align_predictions` raises the usual error.
        if incomplete and kept and not len(kept) == len(examples) == len(predictions):
            note = (
                f"only {len(kept):,} of {len(examples):,} examples and of {len(predictions):,} responses are scored: "
                "the others have no counterpart"
            )
            examples, predictions, notes = kept, {one.id: predictions[one.id] for one in kept}, (note,)
        texts = _collect_texts(examples, predictions)
        if against is None:
            return cls(list(examples), texts, None, notes)
        ids = {example.id for example in examples}
        other = {id_: row for id_, row in against.items() if id_ in ids} if incomplete else against
        try:
            return cls(list(examples), texts, _collect_texts(examples, other), notes)
        except UserError as error:
            raise UserError(f"against: {error.problem}", hint="compare two files over the same examples") from error


def _collect_texts(examples: Sequence[Example], predictions: Mapping[str, Prediction]) -> list[str]:
    texts = [row.text for row in align_predictions(examples, predictions, judged=False)]
    if not any(texts):
        hint = "each line needs its response as text; verdicts on responses are scored with benchmark=faithcritic"
        raise UserError("these predictions hold no responses: every text is empty", hint=hint)
    return texts


CRITIC = "critic"  # the judge of the headline


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseJudge:
    """A detector that judges responses.

    Args:
        key: Begins the names of its metrics: `<key>_rate`, `<key>_rate_corrected`.
        name: Its name in tables.
        error: Its errors on labelled rows; None if there are none.
    """

    key: str
    name: str
    detector: Detector
    error: JudgeError | None = None


def critic_rate(
    detector: Detector,
    examples: Sequence[Example],
    responses: Sequence[str],
    *,
    key: str = CRITIC,
    progress: bool = False,
) -> dict[str, Values]:
    """Computes `<key>_rate`, 1 where hallucinated, and `<key>_score`, P(hallucinated) [N].

    The mean is the share of responses that a detector calls hallucinated (Dziri et al. 2022, section 5.2). Use it as
    the headline of a generator's faithfulness. It is only as good as the detector: name the detector in reports, and do
    not train or choose answers with the one that you report. A second judge of another kind (an NLI model, counted
    words), which makes other errors, shows which differences do not depend on the judge.

    NaN for a reply of the detector that could not be parsed, and where it gives no score.
    """
    judged = detector.predict_examples(
        [replace(example, response=text, spans=None) for example, text in zip(examples, responses, strict=True)],
        progress=progress,
    )
    rows = [
        (
            np.nan if prediction.label == UNPARSED else float(prediction.label == HALLUCINATED),
            np.nan if prediction.score is None else prediction.score,
        )
        for prediction in judged
    ]
    rates, scores = np.array(rows, np.float64).reshape(-1, 2).T
    return {f"{key}_rate": rates, f"{key}_score": scores}


_VERY = r"(?:(?:really|actually|personally|honestly|exactly|quite|too|very|entirely|even|totally|also) )?"
_FACTS = r"(?:information|info|knowledge|details?|data|answers?|idea|clue|opinions?|preferences?|feelings?)"
_QUALIFIER = r"(?:(?:any|much|that|the|enough|more|an?|personal|specific|further|exact|kind of|sort of) )*"
_FALLBACK = re.compile(
    rf"\b(?:i|we) {_VERY}(?:do not|don't|dont) {_VERY}(?:know|recall|remember|have {_QUALIFIER}{_FACTS})\b"
    rf"|\b(?:i|we) {_VERY}(?:can not|cannot|can't|cant|could not|couldn't|am unable to|am not able to) "
    rf"{_VERY}(?:say|tell|comment|answer|confirm|find|give|recall|remember|help)\b"
    rf"|\b(?:i am|i'm|im) {_VERY}(?:not {_VERY}|un)(?:sure|certain|aware|familiar|informed)\b(?! (?:if|whether) you)"
    rf"|\b(?:i|we) have no {_QUALIFIER}{_FACTS}\b"
    r"|\bi(?: have not| haven't|'ve never| have never) heard of\b"
    r"|\b(?:i am|i'm|im|as|being) (?:just |only |merely )?an? (?:ai|bot|robot|chat ?bot|machine|language model)\b"
    # Without its subject, at the start of a sentence.
    rf"|(?:^|[.!?,;] )(?:{_VERY}not {_VERY}(?:sure|certain)|unsure|don't {_VERY}know|no (?:idea|clue))\b"
)


def is_fallback(text: str) -> bool:
    """Checks whether the speaker does not know, cannot say, or has no such experience as a machine."""
    return _FALLBACK.search(" ".join(text.lower().replace("’", "'").split())) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricModels:
    """The models that metrics need; metrics of a model that is not given are left out.

    Args:
        detector: Gives the critic's rate.
        error: The detector's errors on labelled rows.
        others: Further judges of other kinds.
        official: The metrics as the q-squared scripts compute them.
    """

    detector: Detector | None = None
    error: JudgeError | None = None
    others: tuple[ResponseJudge, ...] = ()
    bert_score: BertScore | None = None
    q2: Q2 | None = None
    official: OfficialMetrics | None = None

    @property
    def judges(self) -> tuple[ResponseJudge, ...]:
        """The critic, with its error on labelled rows, and the further judges."""
        if self.detector is None:
            return self.others
        return (ResponseJudge(key=CRITIC, name="critic", detector=self.detector, error=self.error), *self.others)

    @property
    def missing(self) -> tuple[str, ...]:
        """Lists the metrics that are left out, and how to have them."""
        hints = {
            "detector": "critic_rate is left out: no detector is given (benchmark.critic=RUN)",
            "bert_score": "BERTScore is left out: no encoder is given (benchmark.bert_score.encoder=minilm)",
            "q2": "Q2 is left out: it takes benchmark.q2.questions, benchmark.q2.answers and benchmark.nli",
        }
        missing = tuple(note for name, note in hints.items() if getattr(self, name) is None)
        return missing + (self.official.notes if self.official else ())


def gold_response(example: Example) -> str:
    """Returns the dataset's response: the reference where there is one."""
    return example.response if example.reference is None else example.reference


def measure_responses(
    examples: Sequence[Example], responses: Sequence[str], models: MetricModels, *, progress: bool = False
) -> MetricColumns:
    """Measures one response to each example."""
    knowledge, gold = [example.knowledge for example in examples], [gold_response(example) for example in examples]
    groups = Groups.of(example.group for example in examples)
    columns: dict[str, Values] = {}
    notes: list[str] = []
    details: list[dict[str, Any]] = [{} for _ in examples]
    kinds = kinds_of(response_measures())
    for judge in models.judges:
        found = critic_rate(judge.detector, examples, responses, key=judge.key, progress=progress)
        kinds |= {f"{judge.key}_{name}": RESPONSES[f"{CRITIC}_{name}"].kind for name in ("rate", "score")}
        columns |= found
    if models.detector is not None and (unparsed := int(np.isnan(columns[CRITIC_RATE]).sum())):
        notes.append(f"critic_rate: {unparsed} of {len(examples)} verdicts could not be parsed, and do not count")
    if models.q2 is not None:
        scores = models.q2.score(responses, knowledge)
        columns |= {"q2_f1": scores.f1, "q2_nli": scores.nli}
        notes.append(_keep_questions(details, "q2", scores))
    if models.bert_score is not None:
        before = models.bert_score.num_cut
        columns |= models.bert_score.score(responses, knowledge)
        if cut := models.bert_score.num_cut - before:
            notes.append(f"BERTScore reads {models.bert_score.max_length} tokens: {cut} texts were cut")
    if models.official is not None:
        official, asked = models.official.score(responses, knowledge)
        columns |= official
        if models.detector is not None:
            # FaithDial's critic decides without a fitted threshold.
            doubt = columns[f"{CRITIC}_score"]
            columns[f"official_{CRITIC_RATE}"] = np.where(np.isnan(doubt), np.nan, doubt >= 0.5)
        if asked is not None:
            notes.append(f"official {_keep_questions(details, 'official_q2', asked)}")
    columns["knowledge_f1"] = knowledge_f1(responses, knowledge)
    counts = bleu_counts(responses, gold)
    columns["sentence_bleu"] = bleu(counts, effective_order=True)
    columns |= rouge(responses, gold)
    columns |= extractive_fragments(responses, knowledge)
    columns["num_words"] = np.array([len(apostrophe_words(text)) for text in responses], np.float64)
    # A good system says that it does not know only where the gold response does.
    columns["fallback"] = np.array([is_fallback(text) for text in responses], np.float64)
    unanswerable: NDArray[np.bool_] = np.array([is_fallback(text) for text in gold], bool)
    columns["fallback_unanswerable"] = np.where(unanswerable, columns["fallback"], np.nan)
    columns["fallback_answerable"] = np.where(~unanswerable, columns["fallback"], np.nan)
    for name, metric in response_measures().items():
        if metric.compute is not None:
            columns[name] = np.asarray(metric.compute(examples, responses), np.float64)
    if empty := sum(not text.strip() for text in responses):
        notes.append(f"{empty} of {len(responses)} responses are empty")
    return MetricColumns(
        groups=groups,
        columns=columns,
        kinds=kinds,
        corpus=(corpus_bleu(groups, counts), distinct_n(groups, responses)),
        details=details,
        notes=tuple(notes),
    )


def measure_part(columns: MetricColumns, paired: PairedResponses, rows: NDArray[np.bool_]) -> MetricColumns:
    """Selects the measures of the marked rows, so that no model runs again."""
    examples = [example for example, marked in zip(paired.examples, rows, strict=True) if marked]
    texts = [text for text, marked in zip(paired.texts, rows, strict=True) if marked]
    groups = Groups.of(example.group for example in examples)
    counts = bleu_counts(texts, [gold_response(example) for example in examples])
    values = {name: column[rows] for name, column in columns.columns.items()}
    corpus = corpus_bleu(groups, counts), distinct_n(groups, texts)
    return MetricColumns(groups=groups, columns=values, kinds=columns.kinds, corpus=corpus)


def _keep_questions(details: list[dict[str, Any]], name: str, scores: Q2Scores) -> str:
    """Adds what Q2 asked to the details of each response, and describes it in a note."""
    for detail, questions in zip(details, scores.asked, strict=True):
        detail[name] = [asdict(one) for one in questions]
    asked, silent = sum(map(len, scores.asked)), sum(not questions for questions in scores.asked)
    candidates = sum(scores.num_candidates)
    return (
        f"Q2: {asked:,} valid questions on {candidates:,} candidate answers; {silent:,} of {len(scores.asked):,} "
        "responses have none and are scored by entailment"
    )
