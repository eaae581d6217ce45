"""FaithDial (Dziri et al. 2022): its data in Tables 1 and 2, critics in 4, generators in 5, in other corpora in 8."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from faithkit.published.figures import published_table
from faithkit_workflows.reproduction.cells import Cell, Count, Difference, Metric, Result, Share, Table, build_cells
from faithkit_workflows.reproduction.human_tables import build_human_tables
from faithkit_workflows.reproduction.table_steps import LOCAL, Step, describe_step

CORPORA = {"decode": "decode", "dnli": "dnli", "mnli": "mnli", "faithcritic": "faithdial"}  # by their critics' data
TRANSFER = "critics_transfer"
WOW, FAITHDIAL, BOTH = "WoW", "FaithDial", "WoW, then FaithDial"
TRAINED_ON = {
    WOW: ("wow", {"data.path": "wow"}),
    FAITHDIAL: ("faithdial", {"data.path": "faithdial"}),
    BOTH: ("wow_then_faithdial", {"data.path": "faithdial", "data.wow_path": "wow"}),
}
GENERATORS = {  # with the arguments of their training
    "GPT2": ("model=gpt2",),
    "DialoGPT": ("model=dialogpt",),
    "DoHA": ("model=doha",),
    "T5": ("model=t5",),
    "T5-CTRL": ("model=t5", "control=ctrl"),
    "T5-LossTruncation": ("model=t5", "objective=loss_truncation"),
    "T5-InfoNCE": ("model=t5", "objective=infonce"),
}
SMALL = {"GPT2": "smollm2-135m", "DialoGPT": "smollm2-135m", "DoHA": "facebook/bart-base"}
# By the paper's heads: the metric of the paper's scripts, ours, and the factor to the paper's unit.
METRICS = {
    "critic": ("official_critic_rate", "critic_rate", 100.0),
    "critic_fitted": ("critic_rate", "", 100.0),
    "q2_f1": ("official_q2_f1", "q2_f1", 100.0),
    "q2_nli": ("official_q2_nli", "q2_nli", 100.0),
    "bert_score": ("official_bertscore", "bertscore_f1", 1.0),
    "knowledge_f1": ("official_f1", "knowledge_f1", 100.0),
    "bleu": ("official_bleu", "bleu", 1.0),
    "rouge_l": ("rouge_l", "", 100.0),  # the scripts have none
}
HEADS = {"critic": "Critic", "critic_fitted": "Critic, fitted threshold", "q2_f1": "Q2 F1", "q2_nli": "Q2 NLI"}
HEADS |= {"bert_score": "BERTScore", "knowledge_f1": "F1", "bleu": "BLEU", "rouge_l": "ROUGE-L"}
NOT_COUNTED = "it follows from the share and the turns of a dialogue"
NO_FIGURE = "the paper's figure is not available"
SEEKERS = {"pipeline.path": "faithdial", "pipeline.wow_path": "wow"}
ZERO_SHOT = ("topical_chat", "cmu_dog", "wow")
# Few rows in small batches: the local scale only shows that everything works.
FEW = ("model.batch_size=4", "data.eval_max_tokens=512", "data.num_rows=32", "callbacks.num_examples=0")


def build_tables(scale: str) -> Iterator[Table]:
    """Builds the tables of the paper at a scale."""
    yield from _data_tables()
    yield _critics_table(scale)
    scored, trainings = _grid_steps(scale)
    yield _generators_table(scored, trainings)
    yield _zero_shot_table(scale)
    yield from build_human_tables(scale, scored, trainings)


def _data_tables() -> Iterator[Table]:
    audit = describe_step("audit", "faithdial_audit")

    def shares(row: Mapping[str, Any], column: str) -> Result:
        return Share(audit.name, ("classes", row["system"]), column)

    classes = published_table("faithdial_begin").rows[0]
    columns = {name: name for name in classes if name != "system"}
    cells = tuple(build_cells("faithdial_begin", lambda row: row["system"], columns, shares))
    title, published = "Classes of human responses, percent", ("faithdial_begin",)
    note = "the paper's shares are themselves of some two hundred responses; our intervals are Wilson's"
    yield Table(name="faithdial_1", title=title, published=published, cells=cells, steps=(audit,), note=note)

    whole = describe_step("faithdial", "faithdial")
    paths = {"turns": "num_turns", "conversations": "num_dialogues", "response": "response"}
    paths |= {"before": "before", "knowledge": "knowledge"}

    def sizes(row: Mapping[str, Any], column: str) -> Result:
        return Count(whole.name, ("dialogues", row["split"], paths[column]))

    columns = {name: name for name in paths}
    cells = tuple(build_cells("faithdial_sizes", lambda row: row["split"], columns, sizes))
    turns = (Count(whole.name, ("dialogues", "train", "num_dialogues")), 4094, "conversations to train on")
    note = "the paper does not say what a token is; ours are words and punctuation marks"
    seekers = replace(describe_step("faithdial", "faithdial", part="seekers"), corpora=SEEKERS)
    edits: dict[tuple[str, str], Result] = {
        ("wizard", "edited"): Share(whole.name, ("edits",), "edited"),
        ("seeker", "edited"): Metric(seekers.name, "test/faithdial/seeker_edited"),
    }
    yield Table(
        name="faithdial_edits",
        title="Turns that were edited",
        published=("faithdial_edits",),
        cells=tuple(
            build_cells(
                "faithdial_edits",
                lambda row: row["speaker"],
                {"edited": "edited, %", "edited_each": "edited turns a dialogue"},
                lambda row, column: edits.get((row["speaker"], column), NOT_COUNTED),
            )
        ),
        steps=(whole, seekers),
        whole=turns,
        note="seekers: the turns whose dialogue is found in Wizard of Wikipedia, which has them before the edits",
    )
    title, published = "Dialogues, turns and mean tokens by split", ("faithdial_sizes",)
    yield Table(
        name="faithdial_2", title=title, published=published, cells=cells, steps=(whole,), whole=turns, note=note
    )


def _critics_table(scale: str) -> Table:
    few = ("model.batch_size=8", "data.num_rows=600", "callbacks.num_examples=0")
    overrides = f"benchmark.overrides=[{','.join(repr(one) for one in few)}]"
    tested = {"mnli": "mnli", "begin": "begin", "faithcritic": "faithdial"}
    rows = tuple(f"benchmark.test.{name}.num_rows=300" for name in tested)
    step = Step(
        name=TRANSFER,
        script="evaluate",
        arguments=("benchmark=transfer", *((overrides, *rows) if scale == LOCAL else ())),
        corpora={
            **{f"benchmark.train.{name}.path": corpus for name, corpus in CORPORA.items()},
            **{f"benchmark.test.{name}.path": corpus for name, corpus in tested.items()},
        },
        stand_in="minilm in place of RoBERTa-large" if scale == LOCAL else "",
    )
    cells = build_cells(
        "faithdial_transfer",
        lambda row: f"trained on {row['trained_on']}, tested on {row['tested_on']}",
        {"accuracy": "accuracy"},
        lambda row, column: Metric(step.name, f"test/{row['tested_on']}/{row['trained_on']}_accuracy"),
    )
    title, published = "Critics across datasets", ("faithdial_transfer",)
    note = "the paper tests on BEGIN as it was before its release of 2022"
    return Table(name="faithdial_4", title=title, published=published, cells=tuple(cells), steps=(step,), note=note)


def _critic(scale: str) -> Step:
    few = ("model.batch_size=8", "data.num_rows=600", "callbacks.num_examples=0") if scale == LOCAL else ()
    return Step(
        name="faithcritic",
        script="train",
        arguments=("model=critic", "data=faithcritic", *few),
        corpora={"data.path": "faithdial"},
        stand_in="minilm in place of RoBERTa-large" if scale == LOCAL else "",
    )


def _generator(scale: str, system: str, trained_on: str) -> Step:
    data, corpora = TRAINED_ON.get(trained_on) or (trained_on, {"data.path": trained_on})
    arguments, few = (*GENERATORS[system], f"data={data}"), FEW if scale == LOCAL else ()
    if scale == LOCAL and system == "T5-LossTruncation":
        few = (*few, "objective.window=8")
    needs = {"control.entailment": "faithcritic"} if system == "T5-CTRL" and scale == LOCAL else {}
    return Step(
        name=f"generator_{_key(system)}_{data}",
        script="train",
        arguments=(*arguments, *few),
        corpora=corpora,
        steps=needs,
        stand_in=f"{SMALL.get(system, 'flan-t5-small')} in place of the paper's" if scale == LOCAL else "",
    )


def _key(system: str) -> str:
    return system.lower().replace("-", "_")


def _scored(scale: str, name: str, benchmark: str, generator: Step, num_rows: int) -> Step:
    """Builds the step in which a generator answers a benchmark, and the answers are measured."""
    options = (f"benchmark.num_rows={num_rows}", "num_examples=0") if scale == LOCAL else ("benchmark.official=true",)
    return Step(
        name=name,
        script="evaluate",
        arguments=(f"benchmark={benchmark}", "decoding=nucleus", "decoding.top_p=0.6", *options),
        corpora={"benchmark.path": benchmark},
        steps={"checkpoint": generator.name, "benchmark.critic": "faithcritic"},
        stand_in=generator.stand_in,
    )


def _metric(step: Step, corpus: str, name: str) -> Metric:
    official, ours, factor = METRICS[name]
    return Metric(step.name, f"test/{corpus}/{official}", factor, otherwise=ours and f"test/{corpus}/{ours}")


def _cell(row: str, step: Step, corpus: str, name: str, published: float | None = None) -> Cell:
    result, why = _metric(step, corpus, name), "" if published is not None else NO_FIGURE
    digits = 2 if name == "bert_score" else 1
    return Cell(row=row, column=HEADS[name], published=published, digits=digits, result=result, why=why)


def _grid(scale: str) -> Iterator[tuple[str, str]]:
    """Lists systems with their training data: all of the paper's, or at the local scale each of both once."""
    for trained_on, system in product(TRAINED_ON, GENERATORS):
        if system == "T5-InfoNCE" and trained_on == WOW:
            continue  # WoW's responses cannot be the positives of the contrast
        if scale != LOCAL or system == "T5" or trained_on == FAITHDIAL:
            yield trained_on, system


def _grid_steps(scale: str) -> tuple[dict[tuple[str, str], Step], tuple[Step, ...]]:
    """Builds the steps in which the systems of the grid answer FaithDial's test split, and their trainings."""
    trainings: list[Step] = [_critic(scale)]
    scored = {}
    for trained_on, system in _grid(scale):
        generator = _generator(scale, system, trained_on)
        name = generator.name.replace("generator_", "faithdial_by_")
        scored[trained_on, system] = _scored(scale, name, "faithdial", generator, 24)
        trainings.append(generator)
    return scored, tuple(trainings)


def _generators_table(scored: Mapping[tuple[str, str], Step], trainings: tuple[Step, ...]) -> Table:
    cells: list[Cell] = []
    printed = {
        row["metric"]: row["value"] for row in published_table("faithdial_generation").rows if not row["trained_on"]
    }
    for (trained_on, system), step in scored.items():
        for name in METRICS:
            published = printed.get(name) if (trained_on, system) == (FAITHDIAL, "T5-InfoNCE") else None
            cells.append(_cell(f"{trained_on}: {system}", step, "faithdial", name, published))

    def subtract(row: Mapping[str, Any], column: str) -> Result | str:
        after, before = (scored[trained_on, row["system"]] for trained_on in (FAITHDIAL, WOW))
        return Difference(_metric(after, "faithdial", row["metric"]), before.name)

    cells += build_cells(
        "faithdial_generation",
        lambda row: f"{row['system']}: {row['trained_on']} minus {row['than_trained_on']}, {HEADS[row['metric']]}",
        {"value": "points"},
        subtract,
        keep=lambda row: row["trained_on"] is not None,
    )
    title = "Generators on FaithDial's test split, by model and training data"
    note = "of T5-InfoNCE the text does not say whether it was trained on WoW before; ours is without"
    published = ("faithdial_generation",)
    steps = (*trainings, *scored.values())
    return Table(name="faithdial_5", title=title, published=published, cells=tuple(cells), steps=steps, note=note)


def _zero_shot_table(scale: str) -> Table:
    critic, zero_shot = _critic(scale), _generator(scale, "T5", FAITHDIAL)
    steps, cells, scored = [critic, zero_shot], [], {}
    for corpus in ZERO_SHOT:
        in_domain = _generator(scale, "T5", WOW if corpus == "wow" else corpus)
        for key, generator in (("zero_shot", zero_shot), ("in_domain", in_domain)):
            scored[corpus, key] = _scored(scale, f"{corpus}_by_{key}", corpus, generator, 12)
            steps += [generator, scored[corpus, key]]
            trained = "FaithDial" if key == "zero_shot" else corpus
            for name in ("critic", "critic_fitted", "q2_nli", "bert_score", "knowledge_f1"):
                cells.append(_cell(f"{corpus}: T5 trained on {trained}", scored[corpus, key], corpus, name))

    def subtract(row: Mapping[str, Any], column: str) -> Result | str:
        if row["metric"] == "human":
            return "judged by people"
        after, before = (scored[row["tested_on"], key] for key in ("zero_shot", "in_domain"))
        return Difference(_metric(after, row["tested_on"], row["metric"]), before.name)

    cells += build_cells(
        "faithdial_zero_shot",
        lambda row: f"{row['tested_on']}: FaithDial minus in-domain, {HEADS.get(row['metric'], row['metric'])}",
        {"value": "points"},
        subtract,
    )
    title, published = "T5 trained on FaithDial in other corpora, zero-shot", ("faithdial_zero_shot",)
    return Table(name="faithdial_8", title=title, published=published, cells=tuple(cells), steps=tuple(steps))
