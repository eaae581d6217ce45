"""RAGTruth (Niu et al. 2024, first version): its data in Tables 2 to 4, detectors in 5 and 6, suppression in 7."""

from collections.abc import Iterator, Mapping
from typing import Any

from faithkit.published.figures import published_table
from faithkit_workflows.reproduction.cells import NOT_LOCAL, Cell, Count, Metric, Result, Share, Table, build_cells
from faithkit_workflows.reproduction.table_steps import LOCAL, Step, describe_step

SMALL = "smollm2-135m"
TASKS = {"qa": "QA", "data2txt": "Data2txt", "summary": "Summary", "": "all"}
MODELS = {"mistral-7b-instruct": "mistral-7B-instruct"}  # the corpus's spelling
STRATEGIES = ("random", "fewest", "none")
FIGURES = {"precision": "precision", "recall": "recall", "f1": "F1"}

DESCRIBE = describe_step("ragtruth", "ragtruth")
WHOLE = (Count(DESCRIBE.name, ("basic", "all", "counts", "num_responses")), 17_838, "responses")


def build_tables(scale: str) -> Iterator[Table]:
    """Builds the tables of the paper at a scale."""
    yield from _data_tables()
    detector = _detector(scale)
    yield from _detector_tables(scale, detector)
    yield _suppression_table(scale, detector)


def _data_tables() -> Iterator[Table]:
    common: dict[str, Any] = {"steps": (DESCRIBE,), "whole": WHOLE}
    basic: dict[str, tuple[str, ...]] = {
        **{"sources": ("num_sources",), "responses": ("counts", "num_responses")},
        **{f"{text}_{of}": (text, of) for text in ("context", "response") for of in ("mean", "max")},
        **{"hallucinated": ("counts", "num_hallucinated"), "spans": ("counts", "num_spans")},
    }

    def in_basic(row: Mapping[str, Any], column: str) -> Result:
        task = row["task"]
        if column == "hallucinated_percent":
            return Metric(DESCRIBE.name, f"all/ragtruth/{'' if task == 'all' else f'task/{task}/'}rate")
        return Count(DESCRIBE.name, ("basic", task, *basic[column]))

    columns = {name: name.replace("_", " ") for name in (*basic, "hallucinated_percent")}
    cells = build_cells("ragtruth_basic", lambda row: row["task"], columns, in_basic)
    title = "RAGTruth's responses and how many are hallucinated"
    yield Table(name="ragtruth_2", title=title, published=("ragtruth_basic",), cells=tuple(cells), **common)

    def in_models(row: Mapping[str, Any], column: str) -> Result:
        found = {"hallucinated": "num_hallucinated", "spans": "num_spans", "density": "density"}[column]
        return Count(DESCRIBE.name, ("models", MODELS.get(row["model"], row["model"]), row["task"], found))

    columns = {"hallucinated": "hallucinated", "spans": "spans", "density": "spans per 100 words"}
    counted = build_cells("ragtruth_models", _model_and_task, columns, in_models)
    table: dict[str, Any] = {"published": ("ragtruth_models",), "cells": (*counted, *_shares_by_model())}
    note = "the paper prints no rates: they follow from its counts, and our intervals of them are Wilson's"
    yield Table(name="ragtruth_3", title="Hallucination by model and task", note=note, **table, **common)

    def in_lengths(row: Mapping[str, Any], column: str) -> Result:
        return Count(DESCRIBE.name, (f"{row['by']}_buckets", row["task"], row["bucket"] - 1, "counts", "spans_each"))

    named = "{by} of {task}, ({low}, {high}] words"
    columns = {"spans_each": "spans a response"}
    cells = build_cells("ragtruth_lengths", lambda row: named.format(**row), columns, in_lengths)
    title = "Spans by fifths of the length of context and response"
    note = "our fifths are those of our responses: their bounds differ from the paper's if these are only a part"
    yield Table(
        name="ragtruth_4", title=title, published=("ragtruth_lengths",), cells=tuple(cells), note=note, **common
    )


def _model_and_task(row: Mapping[str, Any]) -> str:
    return f"{row['model']}, {row['task']}"


def _shares_by_model() -> Iterator[Cell]:
    """Builds cells of the shares that follow from the paper's counts, which can be compared for a part too."""
    sources = {row["task"]: row["sources"] for row in published_table("ragtruth_basic").rows}
    sources["Summary"] = sum(number for task, number in sources.items() if task.startswith("Summary"))
    for row in published_table("ragtruth_models").rows:  # each model answers every source once
        counts = ("models", MODELS.get(row["model"], row["model"]), row["task"])
        yield Cell(
            row=_model_and_task(row),
            column="rate, %",
            published=round(100 * row["hallucinated"] / sources[row["task"]], 1),
            digits=1,
            result=Share(DESCRIBE.name, counts, "num_hallucinated", of="num_responses"),
        )


def _benchmark(name: str, *arguments: str, benchmark: str = "ragtruth", **options: Any) -> Step:
    corpora = {"benchmark.path": "ragtruth"}
    return Step(
        name=name, script="evaluate", arguments=(f"benchmark={benchmark}", *arguments), corpora=corpora, **options
    )


def _detector(scale: str) -> Step:
    """Builds the training of the detector: at the local scale a tagger, which trains in minutes."""
    model: tuple[str, ...] = ("model=judge_lora", "model.ask=spans", "trainer=fsdp")
    if scale == LOCAL:
        model = ("model=tagger", "data.num_rows=400", "callbacks.num_examples=0")
    return Step(
        name="ragtruth_detector",
        script="train",
        arguments=(*model, "data=ragtruth"),
        corpora={"data.path": "ragtruth"},
        stand_in="a tagger on minilm in place of Llama-2-13B" if scale == LOCAL else "",
        num_gpus=0 if scale == LOCAL else 4,  # 52 GB of fp32 weights, and 16 rows of up to 4,096 tokens
    )


def _prompted_step(scale: str, name: str, model: str, *arguments: str, num_rows: int) -> Step:
    """Builds the step of a prompted baseline: at the local scale one small model replaces all hosted ones."""
    if scale != LOCAL:
        hosted = ("engine=openai", f"engine.model={model.lower()}")
        return _benchmark(f"ragtruth_{name}_{model.lower()}", *hosted, *arguments, server="OpenAI's server")
    asked = ("engine=transformers", f"engine.model={SMALL}", f"benchmark.num_rows={num_rows}", "num_examples=0")
    return _benchmark(f"ragtruth_{name}", *asked, *arguments, stand_in=f"{SMALL} in place of the paper's models")


def _trained(detector: Step) -> dict[str, Any]:
    return {"steps": {"checkpoint": detector.name}, "stand_in": detector.stand_in}


def _detector_tables(scale: str, detector: Step) -> Iterator[Table]:
    is_local, trained = scale == LOCAL, _trained(detector)
    few = ("benchmark.num_rows=240",) if is_local else ()
    scored = _benchmark("ragtruth_scored", *few, "num_examples=0", **trained)
    examined = ("examiner.turns=1", "examiner.max_new_tokens=48") if is_local else ("examiner.turns=2",)
    others = ("selfcheck.measure=prompt", "selfcheck.samples=others")
    systems = {"Llama-2-13B, fine-tuned": scored}
    asked = (
        "judge.ask=spans",
        "judge.prompts=ragtruth",
        *(["judge.max_new_tokens=48"] if is_local else ["judge.written=true"]),
    )
    for model in ("GPT-3.5-turbo",) if is_local else ("GPT-3.5-turbo", "GPT-4-turbo"):
        checked = f"SelfCheckGPT, {model.removesuffix('-turbo')}"
        systems[f"{model}, prompted"] = _prompted_step(scale, "prompt", model, *asked, num_rows=12)
        systems[checked] = _prompted_step(scale, "selfcheck", model, *others, num_rows=12)
    systems["LMvLM, GPT-4-turbo"] = _prompted_step(scale, "lmvlm", "GPT-4-turbo", *examined, num_rows=4)

    for name, level, published in (
        ("ragtruth_5", "response", "ragtruth_response_level"),
        ("ragtruth_6", "char", "ragtruth_span_level"),
    ):

        def find(row: Mapping[str, Any], column: str, level: str = level) -> Result | str:
            if row["system"] not in systems:
                return NOT_LOCAL
            part = f"task/{row['task']}/" if row["task"] else ""
            return Metric(systems[row["system"]].name, f"test/ragtruth/{part}{level}_{column}")

        cells = tuple(build_cells(published, lambda row: f"{row['system']}; {TASKS[row['task']]}", FIGURES, find))
        unit = "responses" if level == "response" else "characters"
        title = f"Detection of hallucinated {unit}, by task"
        note = "prompts show the records of Data2txt as lines of names and values, those of the paper as JSON"
        yield Table(
            name=name, title=title, published=(published,), cells=cells, steps=(detector, *systems.values()), note=note
        )


def _suppression_table(scale: str, detector: Step) -> Table:
    few = ("benchmark.num_rows=480",) if scale == LOCAL else ()
    suppressed = _benchmark("ragtruth_suppressed", *few, benchmark="suppression", **_trained(detector))

    def in_suppression(row: Mapping[str, Any], column: str) -> Result:
        treatment = row["treatment"]
        of = treatment if treatment in STRATEGIES else f"from/{MODELS.get(treatment, treatment)}"
        figure = {"rate": "hallucination_rate", "reduction": "relative_reduction"}[column]
        # The embedded corpus has other models, so the choice is among all.
        of_all = f"test/suppression/all/{of}/{figure}" if scale == LOCAL else ""
        return Metric(suppressed.name, f"test/suppression/{row['group']}/{of}/{figure}", otherwise=of_all)

    columns = {"rate": "hallucinated, %", "reduction": "reduction, %"}
    cells = tuple(
        build_cells("ragtruth_suppression", lambda row: f"{row['group']}: {row['treatment']}", columns, in_suppression)
    )
    title = "Fewer hallucinations by choosing between two responses with the detector"
    note = "the paper misprints one reduction: 41.0 does not follow from its rates"
    steps = (detector, suppressed)
    table: dict[str, Any] = {"published": ("ragtruth_suppression",), "cells": cells, "steps": steps}
    return Table(name="ragtruth_7", title=title, note=note, **table)
