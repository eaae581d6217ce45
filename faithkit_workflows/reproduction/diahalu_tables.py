"""DiaHalu (Chen et al. 2024, first version): sizes in Tables 1 and 2, detectors in 3, prompting and retrieval in 4."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from faithkit_workflows.reproduction.cells import NOT_LOCAL, Count, Metric, Result, Table, build_cells
from faithkit_workflows.reproduction.table_steps import LOCAL, Step, describe_step, gpus_for

SMALL = "smollm2-135m"
FIGURES = {"precision": "precision", "recall": "recall", "f1": "F1"}
# Open weights, by the paper's names; ChatGPT is behind a server.
OPEN = {"LLaMA-30B": "huggyllama/llama-30b", "Vicuna-33B": "lmsys/vicuna-33b-v1.3"}
HOSTED = {"ChatGPT3.5": "gpt-3.5-turbo-1106", "ChatGPT4": "gpt-4-1106-preview"}
SELFCHECK = {"SelfCheckGPT, BERTScore": "bert_score", "SelfCheckGPT, NLI": "nli", "SelfCheckGPT, prompt": "prompt"}
CHATGPT = "ChatGPT3.5"  # wrote the dialogues, and rephrases them for SelfCheckGPT
# The paper rephrases at several temperatures, and gives neither them nor the number of samples.
REPHRASED = ("selfcheck.samples=rephrased", "selfcheck.num_samples=1")
OUR_PROMPTS = "judge.prompts=diahalu"
NUM_SMALL = 24  # dialogues of a small model: it reads and writes all of each

DESCRIBE = describe_step("diahalu", "diahalu")
WHOLE = (Count(DESCRIBE.name, ("basic", "all", "counts", "num_responses")), 748, "dialogues")


def build_tables(scale: str) -> Iterator[Table]:
    """Builds the tables of the paper at a scale."""
    yield from _data_tables()
    yield from _detector_tables(scale)


def _data_tables() -> Iterator[Table]:
    whole = {"dialogues": "num_dialogues", "mean_rounds": "rounds"}
    whole |= {"response_mean": "turn_words", "response_max": "longest_turn"}
    columns = {"dialogues": "dialogues", "mean_rounds": "rounds, mean"}
    columns |= {"response_mean": "words of a turn, mean", "response_max": "words of a turn, most"}
    cells = tuple(
        build_cells(
            "diahalu_sizes",
            lambda row: "all",
            columns,
            lambda row, column: Count(DESCRIBE.name, ("dialogues", "all", whole[column])),
        )
    )
    title, published, steps = "DiaHalu's size", ("diahalu_sizes",), (DESCRIBE,)
    note = (
        "a round is two turns; ours counts all words of a turn, the paper's mean those before a colon in it (with"
        " which ours is 13.5092)"
    )
    yield Table(name="diahalu_1", title=title, published=published, cells=cells, steps=steps, whole=WHOLE, note=note)

    def find(row: Mapping[str, Any], column: str) -> Result:
        domain = row["domain"]
        if column == "rate":
            return Metric(DESCRIBE.name, f"all/diahalu/{'' if domain == 'all' else f'domain/{domain}/'}rate")
        counted = {"dialogues": "num_responses", "hallucinated": "num_hallucinated"}[column]
        return Count(DESCRIBE.name, ("basic", domain, "counts", counted))

    columns = {"dialogues": "dialogues", "hallucinated": "hallucinated", "rate": "rate, %"}
    cells = tuple(build_cells("diahalu_counts", lambda row: row["domain"], columns, find))
    note = "the paper's version is the first, DiaHalu_V1.xlsx: of a folder with several versions this one is read"
    title, published = "DiaHalu's dialogues and how many are hallucinated", ("diahalu_counts",)
    yield Table(name="diahalu_2", title=title, published=published, cells=cells, steps=steps, whole=WHOLE, note=note)


def _prompted_step(scale: str, name: str, model: str, *arguments: str, num_rows: int = NUM_SMALL) -> Step:
    """Builds the step of a language model as detector; at the local scale a small one."""
    common: dict[str, Any] = {"script": "evaluate", "corpora": {"benchmark.path": "diahalu"}}
    head, tail = ("benchmark=diahalu",), (*arguments, "num_examples=0")
    if scale == LOCAL:
        small = ("engine=transformers", f"engine.model={SMALL}", f"benchmark.num_rows={num_rows}")
        stand_in = f"{SMALL} in place of the paper's models"
        return Step(name=f"diahalu_{name}", arguments=(*head, *small, *tail), stand_in=stand_in, **common)
    written, asked = "judge.written=true", tuple[str, ...]()
    if model in HOSTED:
        asked = ("engine=openai", f"engine.model={HOSTED[model]}", written)
        common["server"] = "OpenAI's server"
    else:
        asked = ("engine=auto", f"engine.model={OPEN[model]}", written, "judge.examples=1")
        common["num_gpus"] = gpus_for(model)
    return Step(name=f"diahalu_{name}_{model.lower()}", arguments=(*head, *asked, *tail), **common)


def _metric(step: str, domain: str, figure: str) -> Metric:
    return Metric(step, f"test/diahalu/{'' if domain == 'all' else f'domain/{domain}/'}{figure}")


def _detector_tables(scale: str) -> Iterator[Table]:
    models = [next(iter(OPEN))] if scale == LOCAL else [*OPEN, *HOSTED]
    plain = {model: _prompted_step(scale, "verdict", model, OUR_PROMPTS) for model in models}
    drawn = ("selfcheck.temperature=[0.3,0.6,0.9,1.2]", "selfcheck.max_new_tokens=1024")  # dialogues have up to 600
    if scale == LOCAL:
        drawn = ("selfcheck.temperature=[0.5,1.0]", "selfcheck.max_new_tokens=256")
    checked = {
        system: _prompted_step(
            scale, f"selfcheck_{measure}", CHATGPT, f"selfcheck.measure={measure}", *REPHRASED, *drawn, num_rows=6
        )
        for system, measure in SELFCHECK.items()
        if measure != "nli" or scale != LOCAL  # without an NLI model
    }
    detectors = {**checked, **plain}
    base = next(iter(plain.values()))

    def detected(row: Mapping[str, Any], column: str) -> Result | str:
        if row["system"] == "Random":
            if column != "f1":
                return "for chance only the F1 is measured"
            return replace(_metric(base.name, row["domain"], "random_f1"), of_baseline=True)
        if row["system"] not in detectors:
            return NOT_LOCAL
        return _metric(detectors[row["system"]].name, row["domain"], column)

    def named(row: Mapping[str, Any]) -> str:
        return f"{row['system']}; {row['domain']}"

    cells = tuple(build_cells("diahalu_detection", named, FIGURES, detected))
    title = "Detection of hallucinated dialogues"
    note = "chance guesses by our share of hallucinated dialogues; the paper's rate is unknown"
    steps = tuple(detectors.values())
    yield Table(name="diahalu_3", title=title, published=("diahalu_detection",), cells=cells, steps=steps, note=note)

    helped = {}
    for model in [CHATGPT] if scale == LOCAL else HOSTED:
        thinking = ("judge.ask=steps", OUR_PROMPTS, *(["judge.max_new_tokens=48"] if scale == LOCAL else []))
        helped[f"{model} with CoT"] = _prompted_step(scale, "steps", model, *thinking, num_rows=8)
        helped[f"{model} with retrieval"] = _with_documents(scale, model)

    def prompted(row: Mapping[str, Any], column: str) -> Result | str:
        if row["system"] not in helped:
            return NOT_LOCAL
        return _metric(helped[row["system"]].name, row["domain"], column)

    cells = tuple(build_cells("diahalu_cot", named, FIGURES, prompted))
    title = "Detection with chain of thought and with retrieval"
    note = "the paper retrieves from the web; here from the documents below data_dir/documents, or the embedded corpus"
    yield Table(
        name="diahalu_4", title=title, published=("diahalu_cot",), cells=cells, steps=tuple(helped.values()), note=note
    )


def _with_documents(scale: str, model: str) -> Step:
    if scale == LOCAL:
        return _prompted_step(scale, "retrieval", model, OUR_PROMPTS, "retrieval.path=embedded")
    step = _prompted_step(scale, "retrieval", model, OUR_PROMPTS)
    return replace(step, corpora={**step.corpora, "retrieval.path": "documents"})
