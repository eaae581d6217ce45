"""FaithDial's figures that people judge: Table 7, unanswerable turns, validation, and fallback responses.

Each table writes the forms as a project of Label Studio. When people have filled it, its export in `data_dir` gives the
figures: the same command then measures means, agreement and significance.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from construction.annotation.schemes import TRIGGERS
from faithkit_workflows.reproduction.cells import (
    NOT_LOCAL,
    Cell,
    HumanScore,
    Metric,
    Result,
    Table,
    build_cells,
)
from faithkit_workflows.reproduction.table_steps import LOCAL, Step, form_steps

ALPHA = "Krippendorff's alpha"
UNNAMED_ALPHAS = "the paper gives seven alphas, 0.75 to 0.92, in an order that it does not state"
WHOLE_DIALOGUES = "one linguist judged it in 45 whole dialogues: no file labels it, and the forms show single replies"
QUALITIES = {  # the columns of Table 7, with our answers that they count
    "interpretable": ("interpretable=Yes", 100.0),
    "hallucination": ("faithful=Hallucination", 100.0),
    "generic": ("faithful=Generic", 100.0),
    "cooperative": ("cooperative", 1.0),
    "abstractive": ("abstractive", 1.0),
    "engaging": ("engaging", 1.0),
}


Systems = Mapping[tuple[str, str], Step]  # steps that answer FaithDial's test turns, by training data and system


def build_human_tables(scale: str, systems: Systems, trainings: tuple[Step, ...]) -> Iterator[Table]:
    """Builds the tables at a scale.

    Args:
        trainings: The steps that the systems need.
    """
    yield _qualities_table(scale, systems, trainings)
    yield _unanswerable_table(scale, systems, trainings)
    yield _validation_table(scale)
    yield _fallback_table(scale)


def _drawn(scale: str, number: int) -> tuple[str, ...]:
    """Returns the arguments that draw the turns; at the local scale a few of those that the systems answer."""
    return ("limit=24", "pipeline.sample=6") if scale == LOCAL else (f"pipeline.sample={number}",)


def _key(trained_on: str, system: str) -> str:
    """Returns the name of a system in forms and metrics."""
    return "".join(c if c.isalnum() else "_" for c in f"{system}_{trained_on}".lower())


def _systems_options(systems: Systems) -> dict[str, Any]:
    steps = {f"+pipeline.systems.{_key(*of)}": step.name for of, step in systems.items()}
    stand_ins = dict.fromkeys(step.stand_in for step in systems.values() if step.stand_in)
    return {"steps": steps, "stand_in": "; ".join(stand_ins)}


def _qualities_table(scale: str, systems: Systems, trainings: tuple[Step, ...]) -> Table:
    name = "faithdial_7"
    judged = {of: step for of, step in systems.items() if of[1].startswith("T5") and of[0] != "WoW, then FaithDial"}
    judged |= {of: step for of, step in systems.items() if of == ("WoW, then FaithDial", "T5")}
    steps = form_steps(name, "faithdial", "likert", *_drawn(scale, 200), **_systems_options(judged))

    def find(row: Mapping[str, Any], column: str) -> Result | str:
        of = (row["trained_on"], row["system"])
        if of not in judged:
            return NOT_LOCAL
        answer, factor = QUALITIES[column]
        return HumanScore(steps[-1].name, f"test/{name}/{answer}/{_key(*of)}/mean", factor)

    cells = [*build_cells("faithdial_human", _row, {quality: quality for quality in QUALITIES}, find)]
    for quality, (answer, _) in QUALITIES.items():
        measure = "alpha" if "=" in answer else "alpha_ordinal"  # of choices, or of ratings
        question = answer.replace("=", "/").removesuffix("/Yes")
        alpha = Metric(steps[-1].name, f"test/{name}/{question}/{measure}", 1.0)
        cells.append(Cell(row=ALPHA, column=quality, published=None, digits=2, result=alpha, why=UNNAMED_ALPHAS))
    note = "*, **: differs from the best of its column with p < 0.05, 0.01 (ours: Wilcoxon's signed ranks, Holm; "
    note += "the paper names no test). Shares are of all responses. The paper states ratings from 1 to 4, "
    note += "and prints a mean of 0.92"
    title, published = "Human evaluation of generators", ("faithdial_human",)
    every = (*trainings, *systems.values(), *steps)
    return Table(name=name, title=title, published=published, cells=tuple(cells), steps=every, note=note)


def _row(row: Mapping[str, Any]) -> str:
    return f"{row['trained_on']}: {row['system']}" if row["trained_on"] else ALPHA


def _unanswerable_table(scale: str, systems: Systems, trainings: tuple[Step, ...]) -> Table:
    name = "faithdial_unanswerable"
    wanted = (("FaithDial", "T5-InfoNCE"), ("WoW", "T5-LossTruncation"))
    judged = {of: systems[of] for of in wanted if of in systems}
    arguments = ("pipeline.only=unanswerable", *_drawn(scale, 200))
    steps = form_steps(name, "faithdial", "unanswerable", *arguments, **_systems_options(judged))

    def find(row: Mapping[str, Any], column: str) -> Result | str:
        of = (row["trained_on"], row["system"])
        if column == "alpha":
            return Metric(steps[-1].name, f"test/{name}/appropriate/alpha", 1.0)
        if of not in judged:
            return NOT_LOCAL
        return Metric(steps[-1].name, f"test/{name}/appropriate=Yes/{_key(*of)}/mean")

    cells = tuple(build_cells(name, _row, {"appropriate": "appropriate, %", "alpha": "alpha"}, find))
    note = "ours are turns to which the dataset replies that the answer is not known; how the paper drew its is unknown"
    every = (*trainings, *systems.values(), *steps)
    title = "Replies to turns that the knowledge does not answer"
    return Table(name=name, title=title, published=(name,), cells=cells, steps=every, note=note)


def _validation_table(scale: str) -> Table:
    name = "faithdial_validation"
    steps = form_steps(name, "faithdial", "faithdial", "pipeline.text=original", *_drawn(scale, 500))

    def find(row: Mapping[str, Any], column: str) -> Result:
        question = row["taxonomy"].lower()
        if column == "kappa":
            return Metric(steps[-1].name, f"test/{name}/{question}/fleiss_kappa", 1.0)
        return Metric(steps[1].name, f"test/faithdial/{question}_f1")

    cells = tuple(build_cells(name, lambda row: row["taxonomy"], {"kappa": "kappa", "f1": "F1, %"}, find))
    note = "the paper's people judged edited responses; the release has labels of the original ones alone, and so ours "
    note += (
        "judge these. Ours is the micro F1 of the labels that most people gave; rows without a majority are left out"
    )
    title = "New labels of three people, among themselves and against the dataset's"
    return Table(name=name, title=title, published=(name,), cells=cells, steps=steps, note=note)


def _fallback_table(scale: str) -> Table:
    name = "faithdial_fallback"
    steps = form_steps(name, "faithdial", "fallback", *_drawn(scale, 400))

    def find(row: Mapping[str, Any], column: str) -> Result | str:
        if row["trigger"] not in TRIGGERS:
            return WHOLE_DIALOGUES
        return Metric(steps[-1].name, f"test/{name}/trigger={row['trigger']}/share")

    cells = tuple(build_cells(name, lambda row: row["trigger"], {"share": "share, %"}, find))
    note = "of responses drawn one by one; the paper read 45 whole dialogues"
    title = "What leads to replies that do not answer"
    return Table(name=name, title=title, published=(name,), cells=cells, steps=steps, note=note)
