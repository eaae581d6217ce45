"""A scorer for inspect_ai; `inspect_logs.py` reads its logs.

Task(dataset=..., solver=generate(), scorer=faithfulness())  # the context is in the samples' metadata
"""

from faithkit_workflows.adapters.scorer import (
    DEFAULT,
    WARN,
    FaithfulnessScorer,
    describe,
    needs_tool,
    to_dict,
    to_score,
)

with needs_tool("inspect_ai", "inspect_ai"):
    from anyio.to_thread import run_sync
    from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
    from inspect_ai.solver import TaskState


@scorer(metrics=[mean(), stderr()])  # type: ignore[untyped-decorator, unused-ignore]
def faithfulness(
    checkpoint: str = DEFAULT, threshold: float | None = None, context: str = "context", on_language: str = WARN
) -> Scorer:
    """Scores the output by the context in the sample's metadata; 1 is faithful.

    An empty output is unscored. The score's metadata have the label, which `threshold` changes, and the probability.

    Args:
        checkpoint: A run, an hf/ folder, a hub name or the name of a detector.
        threshold: P(hallucinated) from which an output is hallucinated; None takes the detector's own.
        context: The key in the metadata: a text, or a list of passages.
        on_language: Of texts in a language that the detector does not read: warn, stop or ignore.
    """
    own = FaithfulnessScorer(checkpoint, threshold, on_language)

    async def score(state: TaskState, target: Target) -> Score:
        answer = state.output.completion
        if not answer.strip():
            return Score.unscored(explanation="the output is empty", reason="no_response")
        found = await run_sync(own.score_one, answer, state.metadata.get(context), state.input_text)
        value, explanation = to_score(found), describe(found)
        if value is None:
            return Score.unscored(explanation=explanation, reason="grader_failed")
        return Score(value=value, answer=answer, explanation=explanation, metadata=to_dict(found))

    return score
