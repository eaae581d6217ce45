"""HalluDial (Luo et al. 2024): counts in Table 1; judges in 2, 4, 5, 7, 8, reasons in 3; rates in 6, 9; pairs in 10."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from faithkit_workflows.reproduction.cells import NOT_LOCAL, NOT_MEASURED, Count, Metric, Result, Table, build_cells
from faithkit_workflows.reproduction.table_steps import LOCAL, Step, describe_step, form_steps, gpus_for

SMALL, JUDGE = "smollm2-135m", "HalluJudge"
# Open weights, by the paper's names.
OPEN = {
    "Llama-2-7B-chat": "meta-llama/Llama-2-7b-chat-hf",
    "Llama-2-13B-chat": "meta-llama/Llama-2-13b-chat-hf",
    "Llama-2-70B-chat": "meta-llama/Llama-2-70b-chat-hf",
    "vicuna-7B-v1.5": "lmsys/vicuna-7b-v1.5",
    "vicuna-13B-v1.5": "lmsys/vicuna-13b-v1.5",
    "vicuna-33B-v1.3": "lmsys/vicuna-33b-v1.3",
    "Mistral-7B-Instruct-v0.2": "mistralai/Mistral-7B-Instruct-v0.2",
    "Baichuan2-7B-Chat": "baichuan-inc/Baichuan2-7B-Chat",
    "Baichuan2-13B-Chat": "baichuan-inc/Baichuan2-13B-Chat",
    "internlm2-chat-7B": "internlm/internlm2-chat-7b",
    "internlm2-chat-20B": "internlm/internlm2-chat-20b",
    "deepseek-llm-7B-chat": "deepseek-ai/deepseek-llm-7b-chat",
    "deepseek-llm-67B-chat": "deepseek-ai/deepseek-llm-67b-chat",
    "Qwen1.5-7B-Chat": "Qwen/Qwen1.5-7B-Chat",
    "Qwen1.5-32B-Chat": "Qwen/Qwen1.5-32B-Chat",
    "Qwen1.5-72B-Chat": "Qwen/Qwen1.5-72B-Chat",
}
HOSTED = {
    "GPT-3.5-turbo": "gpt-3.5-turbo",
    "GPT-3.5-turbo-1106": "gpt-3.5-turbo-1106",
    "GPT-4-1106-preview": "gpt-4-1106-preview",
    "GPT-4-0125-preview": "gpt-4-0125-preview",
    "GPT-4o-2024-05-13": "gpt-4o-2024-05-13",
}
# In Tables 2 and 6, which have some of the systems of 7 and 9.
SHORT = (*list(OPEN)[:6], *HOSTED, JUDGE)
SHORT_RATES = (*list(OPEN)[:7], *HOSTED)
SMALL_ROW = "Llama-2-7B-chat"  # the row of the small model at the local scale
OF_BOTH = {"accuracy": "accuracy", "precision": "mean P", "recall": "mean R", "macro_f1": "macro-F1"}
OF_EACH = {"f1": "F1 hallucinated", "faithful_f1": "F1 faithful", **OF_BOTH}
CORPUS = "halludial"
SCENARIOS = ("spontaneous", "induced")
JUDGED_BY_PEOPLE = ("GPT-3.5-turbo", "GPT-4-1106-preview", JUDGE)
REMOTE_CODE = {"chatglm3-6B": "its weights come with code, which is never executed"}
# Few rows in small batches: the local scale only shows that everything works.
FEW = (
    *("data.num_rows=40", "data.validation_fraction=0.4", "data.eval_max_tokens=512"),
    *("model.batch_size=2", "model.max_length=320", "model.validations_per_epoch=1"),
)


def build_tables(scale: str) -> Iterator[Table]:
    """Builds the tables of the paper at a scale."""
    yield _counts_table()
    judge = _judge(scale)
    yield from _detection_tables(scale, judge)
    yield _reasons_table(scale, judge)
    yield from _transfer_tables(scale, judge)
    yield from _rates_tables(scale, judge)
    yield _comparison_table(scale)


def _counts_table() -> Table:
    scenarios = ((s, f"pipeline.options.scenario={s}") for s in SCENARIOS)
    steps = {scenario: describe_step(CORPUS, CORPUS, option, part=scenario) for scenario, option in scenarios}

    def find(row: Mapping[str, Any], column: str) -> Result:
        scenario = row["scenario"]
        if column in ("train", "test"):
            return Count(steps[scenario].name, ("rates", "split", column, "n"))
        return Count(steps[scenario].name, ("basic", scenario, "counts", f"num_{column}"))

    columns = {name: name for name in ("train", "test", "hallucinated", "faithful")}
    cells = tuple(build_cells("halludial_counts", lambda row: row["scenario"], columns, find))
    title = "Responses by scenario, split and label"
    note = "the paper's figures are those of its section 2.4 and of the release"
    return Table(
        name="halludial_1",
        title=title,
        published=("halludial_counts",),
        cells=cells,
        steps=tuple(steps.values()),
        note=note,
    )


def _judge(scale: str) -> Step:
    """Builds the training of HalluJudge on the official training files, except for the table of the paper's test."""
    is_local = scale == LOCAL
    options = (*FEW, "callbacks.num_examples=0") if is_local else ("trainer=fsdp",)
    return Step(
        name="hallujudge",
        script="train",
        arguments=("model=judge", f"data={CORPUS}", *options),
        corpora={"data.path": CORPUS},
        stand_in=f"{SMALL} in place of Llama-2-7B" if is_local else "",
        num_gpus=0 if is_local else 4,  # 16 bytes a parameter: weights, gradients and two moments in fp32
    )


def _three_judges(judge: Step) -> Step:
    """Builds the paper's three trainings of HalluJudge: each on a random 60% of the dialogues, tested on 39%."""
    fractions = ("data.test_fraction=0.39", "data.validation_fraction=0.01")
    splits = ("seeds=[1,2,3]", "data.official_split=false", *fractions)
    return replace(judge, name="hallujudge_three_seeds", arguments=(*judge.arguments, *splits))


def _evaluated(name: str, *arguments: str, benchmark: str = CORPUS, corpus: str = CORPUS, **options: Any) -> Step:
    corpora = {"benchmark.path": corpus}
    return Step(
        name=name, script="evaluate", arguments=(f"benchmark={benchmark}", *arguments), corpora=corpora, **options
    )


def _prompted_step(
    scale: str, name: str, model: str, *arguments: str, num_rows: int, small_in: str = SMALL_ROW, **options: Any
) -> Step | None:
    """Builds the step of a zero-shot model; at the local scale only the row `small_in` has one, a small model."""
    if scale == LOCAL:
        small = ("engine=transformers", f"engine.model={SMALL}", f"benchmark.num_rows={num_rows}")
        stand_in = f"{SMALL} in place of {model}"
        if model != small_in:
            return None
        return _evaluated(f"{name}_small", *small, *arguments, stand_in=stand_in, **options)
    if model in HOSTED:
        asked = ("engine=openai", f"engine.model={HOSTED[model]}", "judge.written=true")
        return _evaluated(f"{name}_{model.lower()}", *asked, *arguments, server="OpenAI's server", **options)
    asked = ("engine=auto", f"engine.model={OPEN[model]}", "judge.written=true")
    return _evaluated(f"{name}_{model.lower()}", *asked, *arguments, num_gpus=gpus_for(model), **options)


def _by_judge(scale: str, name: str, judge: Step, *arguments: str, num_rows: int, **options: Any) -> Step:
    few = (f"benchmark.num_rows={num_rows}",) if scale == LOCAL else ()
    return _evaluated(name, *few, *arguments, steps={"checkpoint": judge.name}, stand_in=judge.stand_in, **options)


def _system(row: Mapping[str, Any]) -> str:
    return str(row["system"])


def _found(steps: Mapping[str, Step], scale: str, system: str, metric: str) -> Result | str:
    if system in steps:
        return Metric(steps[system].name, metric)
    return NOT_LOCAL if scale == LOCAL else REMOTE_CODE.get(system, NOT_MEASURED)


def _mean(column: str) -> str:
    """Returns the metric of a column: precision and recall are means over both classes in these tables."""
    return f"mean_{column}" if column in ("precision", "recall") else column


def _detection_tables(scale: str, judge: Step) -> Iterator[Table]:
    few: tuple[str, ...] = ("num_examples=0", "benchmark.bert_score.encoder=null")
    prompted = few if scale == LOCAL else (*few, "benchmark.official=true")
    steps = {name: _prompted_step(scale, CORPUS, name, *prompted, num_rows=40) for name in (*OPEN, *HOSTED)}
    by_system = {name: step for name, step in steps.items() if step}
    by_system[JUDGE] = _three_judges(judge)
    if scale == LOCAL:
        by_system[JUDGE] = _by_judge(scale, "halludial_judged", judge, *few, num_rows=60)
    note = "with scale=paper HalluJudge is the mean of three trainings on a random 60% of the dialogues, its interval "
    note += "over them; validation takes 1% from the paper's test part; "
    note += "for the others replies without Yes or No at their beginning are dropped, as in the release's eval.py"

    def found(row: Mapping[str, Any], column: str) -> Result | str:
        part = f"scenario/{row['scenario']}/" if "scenario" in row else ""
        official = "" if scale == LOCAL or row["system"] == JUDGE else "official_"
        return _found(by_system, scale, row["system"], f"test/{CORPUS}/{part}{official}{_mean(column)}")

    for name, published, columns, title, systems in (
        ("halludial_2", "halludial_detection", OF_EACH, "Hallucination detection on HalluDial", SHORT),
        ("halludial_7", "halludial_detection", OF_EACH, "Hallucination detection by all systems", None),
        ("halludial_8", "halludial_scenarios", OF_BOTH, "Hallucination detection by scenario", None),
    ):

        def named(row: Mapping[str, Any]) -> str:
            return f"{row['system']}; {row['scenario']}" if "scenario" in row else _system(row)

        cells = tuple(build_cells(published, named, columns, found, keep=_keep_systems(systems)))
        needed = (judge, *by_system.values()) if scale == LOCAL else tuple(by_system.values())
        yield Table(name=name, title=title, published=(published,), cells=cells, steps=needed, note=note)


def _reasons_table(scale: str, judge: Step) -> Table:
    examples = ("judge.ask=judgement", "num_examples=0", *(["judge.max_new_tokens=48"] if scale == LOCAL else []))
    rows = () if scale == LOCAL else ("benchmark.num_rows=3200",)
    names = [name for name in SHORT if name != JUDGE]
    steps = {
        n: _prompted_step(scale, "halludial_reasons", n, *examples, "judge.examples=3", *rows, num_rows=6)
        for n in names
    }
    by_system = {name: step for name, step in steps.items() if step}
    few = ("benchmark.num_rows=12",) if scale == LOCAL else rows
    by_system[JUDGE] = _evaluated(
        "halludial_reasoned",
        *("engine=transformers" if scale == LOCAL else "engine=auto",),
        *few,
        *examples,
        steps={"engine.model": judge.name},
        stand_in=judge.stand_in,
    )
    metrics = {"rouge_l": "rouge_l", "bleu_4": "bleu_4", "bert_score": "bertscore_rescaled"}
    # The paper's people judge 850 rows that the models call hallucinated.
    drawn = ("limit=12",) if scale == LOCAL else ("limit=3200", "pipeline.only=hallucinated", "pipeline.sample=850")
    forms = {
        name: form_steps(
            f"halludial_3_{_key(name)}",
            CORPUS,
            CORPUS,
            *drawn,
            steps={f"+pipeline.systems.{_key(name)}": by_system[name].name},
            stand_in=by_system[name].stand_in,
        )
        for name in JUDGED_BY_PEOPLE
        if name in by_system
    }

    def found(row: Mapping[str, Any], column: str) -> Result | str:
        if column == "human" and row["system"] in forms:
            measured = forms[row["system"]][-1].name
            title = measured.removesuffix("_agreement")
            return Metric(measured, f"test/{title}/judgement_is=Accurate/{_key(row['system'])}/mean")
        return _found(by_system, scale, row["system"], f"test/{CORPUS}/rationale/{metrics.get(column)}")

    columns = {"rouge_l": "ROUGE-L", "bleu_4": "BLEU-4", "bert_score": "BERTScore", "human": "human"}
    cells = tuple(build_cells("halludial_rationales", _system, columns, found))
    title = "Where and why: judgements against the dataset's"
    note = "the paper draws its 3,200 rows at random and does not name them; ours are the first. "
    note += "Human: accurate judgements of 850 rows that the system calls hallucinated; "
    note += "one of the paper's three annotators is GPT-4o, ours are people"
    published = ("halludial_rationales",)
    every = (judge, *by_system.values(), *(step for steps in forms.values() for step in steps))
    return Table(name="halludial_3", title=title, published=published, cells=cells, steps=every, note=note)


def _transfer_tables(scale: str, judge: Step) -> Iterator[Table]:
    for name, published, tasks, columns, title in (
        ("halludial_4", "halludial_on_halueval_dialogue", "dialogue", OF_EACH, "Detection on HaluEval's dialogues"),
        (
            "halludial_5",
            "halludial_on_halueval_others",
            "[qa,summarization]",
            OF_BOTH,
            "On its questions and summaries",
        ),
    ):
        arguments = (f"benchmark.options.tasks={tasks}", "num_examples=0")
        halueval: dict[str, Any] = {"benchmark": "halueval", "corpus": "halueval"}
        systems = [system for system in SHORT if system in OPEN or system == "GPT-3.5-turbo"]
        asked = {s: _prompted_step(scale, f"{name}_zero_shot", s, *arguments, num_rows=24, **halueval) for s in systems}
        by_system = {system: step for system, step in asked.items() if step}
        by_system[JUDGE] = _by_judge(scale, f"{name}_judged", judge, *arguments, num_rows=40, **halueval)

        def found(row: Mapping[str, Any], column: str, by_system: Mapping[str, Step] = by_system) -> Result | str:
            return _found(
                by_system, scale, row["system"], f"test/halueval/task/{row.get('task', 'dialogue')}/{_mean(column)}"
            )

        def named(row: Mapping[str, Any]) -> str:
            return f"{row['system']}; {row['task']}" if "task" in row else _system(row)

        cells = tuple(build_cells(published, named, columns, found))
        all_steps = (judge, *by_system.values())
        yield Table(name=name, title=title, published=(published,), cells=cells, steps=all_steps)


def _rates_tables(scale: str, judge: Step) -> Iterator[Table]:
    names = [SMALL_ROW] if scale == LOCAL else [*OPEN, *HOSTED]
    steps = {name: _rated(scale, name, judge) for name in names}

    def found(row: Mapping[str, Any], column: str) -> Result | str:
        history, unit = column.split("_")
        return _found(
            steps, scale, row["system"], f"test/hallucination_rates/{_key(row['system'])}/{history}/{unit}_rate"
        )

    columns = {f"{h}_{unit}": f"{h}, {unit}" for h in ("gold", "self") for unit in ("turn", "dialogue")}
    title = "Hallucination rates of language models, judged by HalluJudge"
    for name, systems, of in (("halludial_6", SHORT_RATES, ""), ("halludial_9", None, ": all systems")):
        cells = tuple(build_cells("halludial_rates", _system, columns, found, keep=_keep_systems(systems)))
        yield Table(
            name=name,
            title=f"{title}{of}",
            published=("halludial_rates",),
            cells=cells,
            steps=(judge, *steps.values()),
        )


def _keep_systems(systems: Sequence[str] | None) -> Callable[[Mapping[str, Any]], bool]:
    """Selects the rows of some systems; None selects all."""
    return lambda row: systems is None or row["system"] in systems


def _key(system: str) -> str:
    """Returns the name of a system in keys and metrics."""
    return "".join(c if c.isalnum() else "_" for c in system.lower())


def _rated(scale: str, model: str, judge: Step) -> Step:
    return _rates_step(f"halludial_rates_{_key(model)}", scale, [model], judge, "decoding.temperature=1.0")


def temperature_step(scale: str, judge: Step) -> Step:
    """Builds the step of Figure 3: the open models of Table 6 at several temperatures."""
    models = [SMALL_ROW] if scale == LOCAL else [name for name in SHORT_RATES if name in OPEN]
    return _rates_step("halludial_temperatures", scale, models, judge, benchmark="temperature_sweep")


def _rates_step(
    name: str, scale: str, models: Sequence[str], judge: Step, *arguments: str, benchmark: str = "hallucination_rates"
) -> Step:
    """Builds the step that measures hallucination rates; at the local scale a small model writes few replies."""
    engines = {model: ("openai" if model in HOSTED else "auto", (OPEN | HOSTED)[model]) for model in models}
    few: tuple[str, ...] = ()
    if scale == LOCAL:
        engines = dict.fromkeys(models, ("transformers", SMALL))
        few = ("benchmark.num_rows=3", "decoding.max_new_tokens=40")
    systems = ", ".join(
        f"{_key(one)}: {{name: {engine}, model: '{named}'}}" for one, (engine, named) in engines.items()
    )
    return _evaluated(
        name,
        *few,
        f"benchmark.systems={{{systems}}}",
        *arguments,
        "decoding.top_p=1.0",
        benchmark=benchmark,
        steps={"checkpoint": judge.name},
        stand_in=f"{SMALL} in place of {' and '.join(models)}, judged by one of {SMALL}" if scale == LOCAL else "",
        server="OpenAI's server" if scale != LOCAL and not HOSTED.keys().isdisjoint(models) else "",
    )


def _comparison_table(scale: str) -> Table:
    first = "vicuna-7B-v1.5"  # the paper's table has no Llama
    options: dict[str, Any] = {"benchmark": "halludial_comparative", "num_rows": 16, "small_in": first}
    names = (first, *list(OPEN)[4:], "GPT-3.5-turbo-1106", "GPT-4-1106-preview")
    asked = {name: _prompted_step(scale, "halludial_compared", name, "num_examples=0", **options) for name in names}
    by_system = {name: step for name, step in asked.items() if step}
    metrics = {"hallucinated_first": "accuracy_first", "hallucinated_last": "accuracy_last"}
    metrics |= {"mean": "accuracy", "invalid": "invalid_rate"}

    def found(row: Mapping[str, Any], column: str) -> Result | str:
        return _found(by_system, scale, row["system"], f"test/halludial_comparative/{metrics[column]}")

    columns = {
        "hallucinated_first": "first, %",
        "hallucinated_last": "last, %",
        "mean": "mean, %",
        "invalid": "invalid, %",
    }
    cells = tuple(build_cells("halludial_comparative", _system, columns, found))
    title = "Which of two replies is hallucinated, by position"
    published = ("halludial_comparative",)
    return Table(name="halludial_10", title=title, published=published, cells=cells, steps=tuple(by_system.values()))
