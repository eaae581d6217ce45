"""Pairs responses with the examples that they answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from faithkit.errors import UserError
from faithkit.metrics.outcomes import align
from faithkit.records import Example, Prediction


@dataclass(frozen=True, slots=True, eq=False)
class PairedResponses:
    """Examples, a response to each, another system's where there is one, and notes on what was left out."""

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
            UserError: Ids that stand on one side only, or predictions that hold no response at all.
        """
        notes: tuple[str, ...] = ()
        if incomplete:
            examples, predictions, notes = _common(examples, predictions)
        texts = _texts(examples, predictions)
        if against is None:
            return cls(list(examples), texts, None, notes)
        wanted = {e.id for e in examples}
        other = {id_: p for id_, p in against.items() if id_ in wanted} if incomplete else against
        try:
            return cls(list(examples), texts, _texts(examples, other), notes)
        except UserError as error:
            raise UserError(f"against: {error.problem}", hint="compare two files over the same examples") from error


def _common(
    examples: Sequence[Example], predictions: Mapping[str, Prediction]
) -> tuple[Sequence[Example], Mapping[str, Prediction], tuple[str, ...]]:
    kept = [example for example in examples if example.id in predictions]
    if not kept or len(kept) == len(examples) == len(predictions):
        return examples, predictions, ()  # with nothing in common `align` refuses them, as without `incomplete`
    note = (
        f"only {len(kept):,} of {len(examples):,} examples and of {len(predictions):,} responses are scored: the "
        "others have no counterpart"
    )
    return kept, {example.id: predictions[example.id] for example in kept}, (note,)


def _texts(examples: Sequence[Example], predictions: Mapping[str, Prediction]) -> list[str]:
    texts = [prediction.text for prediction in align(examples, predictions, judged=False)]
    if not any(texts):
        hint = "each line needs its response as text; verdicts on responses are scored with benchmark=faithcritic"
        raise UserError("these predictions hold no responses: every text is empty", hint=hint)
    return texts
