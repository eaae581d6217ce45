import pytest

from faithkit.evaluation.published import MODELS, PROTOCOLS, PUBLISHED, TASKS, comparable, published
from faithkit.records import Example


def by_model(name):
    return Example(
        id=name,
        source="s",
        split="test",
        group="g",
        knowledge="k",
        response="r",
        label="faithful",
        meta={"model": name},
    )


def test_figures_agree_with_each_other():
    for row in PUBLISHED:
        if row.precision is not None:
            # Rounded to a tenth each, so a small recall bounds its F1 only loosely.
            lowest, highest = ((row.precision + d, row.recall + d) for d in (-0.051, 0.051))
            bounds = [2 * p * r / (p + r) if p > 0 and r > 0 else 0.0 for p, r in (lowest, highest)]
            assert bounds[0] - 0.051 <= row.f1 <= bounds[1] + 0.051, row


def test_a_level_and_task_gives_its_rows_best_first():
    overall = published("ragtruth", "response")
    assert (overall[0].system, overall[0].f1) == ("RAG-HAT", 83.9)
    assert [row.f1 for row in overall] == sorted((row.f1 for row in overall), reverse=True)
    assert {row.source for row in overall} == set(PROTOCOLS)
    qa = {row.system: (row.precision, row.recall, row.f1) for row in published("ragtruth", "char", "qa")}
    assert qa["Llama-2-13B, fine-tuned"] == (72.3, 46.6, 56.6)
    assert all(published("ragtruth", level, task) for level in ("response", "char") for task in TASKS)
    assert not published("xsum_tokens", "char")


@pytest.mark.parametrize(("names", "are"), [(sorted(MODELS), True), (["GPT-4-0613"], True), (["other"], False)])
def test_figures_stand_beside_the_papers_models_alone(names, are):
    assert comparable(map(by_model, names)) is are
    assert not comparable([Example(id="a", source="s", split="test", group="g", knowledge="k", response="r")])
