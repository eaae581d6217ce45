"""The report of a generator's training: loss, perplexity and token accuracy on given responses, and its answers.

loss = sum of -log p(token) / number of tokens; perplexity = exp(loss); token accuracy is the share of tokens that were
the most likely ones. Use them to choose among checkpoints of one model. Perplexities of different tokenizers are not
comparable, and none of the three measures how faithful the model's responses are.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from faithkit.pages.page_tables import add_fields, context_fields, new_field_table
from faithkit.records import Example, Prediction
from faithkit.reports.report import Provenance, Report, Rows, add_provenance, build_sample, metrics_table
from faithkit.scores.measures import LANGUAGE_MODEL, kinds_of
from faithkit.statistics.bootstrap import Groups, ScoredMetrics, bootstrap
from faithkit.statistics.spread import Statistic, Values


def language_model_statistic(groups: Groups, rows: NDArray[np.float64]) -> Statistic:
    """Makes a statistic of means over tokens, not over responses.

    Args:
        rows: For each response the sum of its tokens' losses, their number, and how many were most likely [rows, 3].
    """
    sums = groups.sums(rows)

    def statistic(weights: Values) -> dict[str, Values]:
        losses, tokens, right = (weights @ sums).T
        loss = losses / tokens
        perplexity = np.exp(np.minimum(loss, 80.0))  # the largest loss of which the exponential is a useful number
        return {"loss": loss, "perplexity": perplexity, "token_accuracy": right / tokens}

    return statistic


def perplexity_report(
    examples: Sequence[Example],
    rows: NDArray[np.float64],
    answers: Mapping[str, str],
    *,
    title: str,
    num_resamples: int = 1000,
    origin: Provenance | None = None,
) -> Report:
    """Reports loss, perplexity and token accuracy with intervals, and a table of answers.

    Args:
        rows: Sums by response, see `language_model_statistic`.
        answers: What the model wrote, for some of the examples by id.
        origin: The model, and what it has seen of the examples; None leaves it out.
    """

    def score(chosen: Rows) -> ScoredMetrics:
        groups = Groups.of(example.group for example, marked in zip(examples, chosen, strict=True) if marked)
        statistic = language_model_statistic(groups, rows[chosen])
        return bootstrap(groups, statistic, kinds=kinds_of(LANGUAGE_MODEL), num_resamples=num_resamples)

    scored = score(np.ones(len(examples), bool))
    answered = [example for example in examples if example.id in answers]
    tables = [metrics_table({"model": scored.metrics}, title=title)]
    if answered:
        shown = new_field_table("answers to judge")
        for example in answered:
            fields = {**context_fields(example), "response": example.response, "answer": answers[example.id]}
            add_fields(shown, {"id": example.id, **fields})
        tables.append(shown)
    report = Report(
        metrics=scored.metrics,
        tables=tuple(tables),
        notes=scored.notes,
        samples=tuple(build_sample(example, answer=answers[example.id]) for example in answered),
        answers=[(example, Prediction(id=example.id, text=answers[example.id])) for example in answered],
        rescore=lambda chosen: score(chosen).metrics,
    )
    return add_provenance(report, origin, title=title)
