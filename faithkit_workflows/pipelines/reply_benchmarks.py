"""Benchmarks of models' replies: HalluDial's two scenarios and RAGTruth's responses, in their layouts.

HalluDial (Luo et al. 2024, sections 2.1 and 2.2)

Spontaneous: each model replies to each turn at `temperature`. The model of `engine` (or a detector) judges each reply
at temperature 0, with three examples and the reference reply in the prompt: a verdict, the hallucinated part, and why.

Induced: each turn gets a factual hallucination (it contradicts the knowledge) and one of faithfulness (the knowledge
does not support it), each with its explanation from one reply. The dataset's reference is the faithful reply. A
hallucination that has over six words more than the reference, or with a quoted part that is not in the reply, fails.

RAGTruth (Niu et al. 2024, section 3.1): each model answers, summarizes and describes from sources.

Each model gives one reply to a source. A refusal is kept with the quality `incorrect_refusal` and a cut reply with
`truncated`, as in the release; readers leave both out. Only a person can say whether a refusal is right: each gets
that mark. A reply that is empty, repeats the prompt or is in another language fails.

The sources are in a file with one JSON object per line, as RAGTruth's `source_info.jsonl`: `source_id`, `task_type`
(QA, Summary, Data2txt), `source_info` (an object of `question` and `passages`; a text; any object), and optionally
`source`, the name of the corpus.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from construction.ask import (
    CUT,
    REFUSAL,
    Ask,
    EnginePool,
    ModelReply,
    ReplyRules,
    cut_turns,
    read_induced,
    sampling,
)
from construction.chain import Chain
from construction.official_layouts import (
    GOOD,
    INDUCED,
    REFUSED,
    SPONTANEOUS,
    TRUNCATED,
    write_halludial,
    write_ragtruth,
)
from construction.steps import AT, KEY, NO_VERDICT, Division, Row, RowFailed, Step, usable_rows
from construction.turns import DialogueTurns, last_turn, turn_values
from data_modules.datasets.ragtruth import SOURCE_FIELDS, SOURCES, TASKS, rows_with_ids
from data_modules.reading.rows import BadRow, ReadReport
from faithkit.errors import UserError
from faithkit.files.atomic import hash_file
from faithkit.files.run_folder import RunFolder
from faithkit.inference.prompts import read_text_prompt
from faithkit.inference.text_engines import EngineOptions
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, Prediction
from faithkit.settings.config_files import EMBEDDED
from faithkit_workflows.pipelines.run_chain import (
    Detect,
    build_benchmark,
    build_model,
    example_of,
    require_verdict,
    writers_of,
)
from judge.options import CHOICES, JUDGEMENT
from judge.reply import locate_all, parse_judgement, quoted_parts, target_text

INPUTS, ANNOTATE = "inputs", "annotate"
QA, SUMMARY, DATA = "QA", "Summary", "Data2txt"
MAX_WORDS, WORD_RATIO = 200, 4  # of a summary: at most 200 words and a quarter of the text's (RAGTruth, Table 9)
KEEP, DROP = "keep", "drop"
PROMPTS = {
    QA: ("rag_qa", "question", "passages"),
    SUMMARY: ("rag_summary", "max_words", "document"),
    DATA: ("rag_data", "data"),
}
QUALITY = {None: GOOD, REFUSAL: REFUSED, CUT: TRUNCATED}


def run_spontaneous(run: RunFolder, config: Mapping[str, Any]) -> None:
    """Samples replies, one step for each model, annotates them, and writes both.

    construction/ask.py has the rules for replies.
    """
    block, folder = config["pipeline"], config["prompts"]
    build = EnginePool(build_model, places=1)  # a model that replies and judges is loaded once
    prompt = read_text_prompt("construction", "reply", "max_words", "knowledge", "history", folder=folder)
    limits = {"max_words": block["max_words"], "language": block["language"]}
    rules = ReplyRules(**limits, instruction=prompt.text)

    def read(row: Row, reply: ModelReply, model: str) -> Row:
        text, was_cut = cut_turns(reply.text)
        fault = rules.fault(text, finished=reply.finished or was_cut, last_turn=last_turn(row))
        if fault is not None:
            raise RowFailed(fault, reply.text)
        return {**row, "model": model, "response": text}

    steps: list[Step] = [DialogueTurns(block, config["limit"]).as_step(INPUTS)]
    for model, options in writers_of(config).items():
        work = Ask(
            options=options,
            prompts={"": prompt},
            values=partial(turn_values, max_words=str(block["max_words"])),
            read=partial(read, model=model),
            pretended={"model": model, "response": f"(what {model} replies)"},
            decoding=sampling(block["temperature"], block["max_new_tokens"], config["seed"]),
            build=build,
        )
        steps.append(Step(name=f"sample-{model}", work=work, after=(INPUTS,), branch=model, settings=limits))
    if block["detector"]:
        judge: Any = detect_hallucinations(block["detector"], config["labels"])
    else:
        judge = ask_judge(config, build)
    steps.append(Step(name=ANNOTATE, work=judge, after=tuple(step.name for step in steps[1:])))

    def rows(chain: Chain) -> Iterator[Row]:
        return usable_rows(chain.rows(ANNOTATE))

    def write(folder: Path, chain: Chain, division: Division) -> Mapping[str, int]:
        return write_halludial(folder, SPONTANEOUS, rows(chain), division)

    build_benchmark(run, config, steps, rows, write)


def run_induced(run: RunFolder, config: Mapping[str, Any]) -> None:
    """Generates hallucinations, one step for each kind and model, and writes them with the faithful replies."""
    block = config["pipeline"]
    steps: list[Step] = [DialogueTurns(block, config["limit"]).as_step(INPUTS)]
    for kind in block["kinds"]:
        fields = ("knowledge", "history", "reference")
        prompt = read_text_prompt("construction", f"induced_{kind}", *fields, folder=config["prompts"])
        rules = ReplyRules(language=block["language"], instruction=prompt.text)
        for model, options in writers_of(config).items():
            work = Ask(
                options=options,
                prompts={"": prompt},
                values=turn_values,
                read=partial(_read_hallucination, rules=rules, made={"kind": kind, "model": model}),
                pretended={"response": f"(what {model} makes up)"},
                decoding=sampling(block["temperature"], block["max_new_tokens"], config["seed"]),
                build=build_model,
            )
            name, language = f"{kind}-{model}", {"language": block["language"]}
            steps.append(Step(name=name, work=work, after=(INPUTS,), branch=name, settings=language))

    def write(folder: Path, chain: Chain, division: Division) -> Mapping[str, int]:
        return write_halludial(folder, INDUCED, induced_rows(chain), division)

    build_benchmark(run, config, steps, induced_rows, write)


def _read_hallucination(row: Row, reply: ModelReply, rules: ReplyRules, made: Row) -> Row:
    text, explanation, induced_fault = read_induced(reply.text, row["reference"])
    fault = rules.fault(text, last_turn=last_turn(row)) or induced_fault
    spans = [] if fault else locate_all(quoted_parts(explanation), text)[0]
    if fault or not spans:
        raise RowFailed(fault or "the quoted part is not in the reply", reply.text)
    judged = {"target": f"Yes. {explanation}", "label": HALLUCINATED, "spans": [[s.start, s.end] for s in spans]}
    return {**row, **made, "response": text, **judged}


def induced_rows(chain: Chain) -> Iterator[Row]:
    """Yields the hallucinations of each turn, and its faithful reply if there is a hallucination."""
    branches = [step.name for step in chain.steps.values() if step.after]
    joined = chain.join_branches(branches)
    for turn in chain.rows(INPUTS):
        hallucinations = list(usable_rows(next(joined) for _ in branches))
        yield from hallucinations
        if hallucinations:
            faithful = {"response": turn["reference"], "target": "No.", "label": FAITHFUL, "spans": []}
            yield {**turn, **faithful, KEY: f"{turn[KEY]}{AT}reference"}


def ask_judge(config: Mapping[str, Any], build: EnginePool) -> Ask:
    """Asks the model of `engine` to judge the row's response, at temperature 0.

    A judgement must begin with Yes or No, otherwise the row fails. With `weigh_verdicts` the more probable of the two
    is put before such a judgement, and the row records it: small models rarely follow a form. Quoted parts that are not
    in the response are counted.
    """

    def read(row: Row, reply: ModelReply) -> Row:
        target, added = reply.text.strip(), {}
        found = parse_judgement(target, row["response"])
        if found.label == UNPARSED and reply.probabilities:
            verdict = max(reply.probabilities, key=reply.probabilities.__getitem__)
            target, added = f"{verdict}. {target}".strip(), {"verdict_weighed": reply.probabilities[verdict]}
            found = parse_judgement(target, row["response"])
        if found.label == UNPARSED:
            raise RowFailed(NO_VERDICT, reply.text)
        if found.num_unlocated:
            added["unlocated"] = found.num_unlocated
        spans = [[span.start, span.end] for span in found.spans]
        return {**row, "target": target, "label": found.label, "spans": spans, "rationale": found.rationale, **added}

    block, fields = config["pipeline"], ("knowledge", "history", "reference", "response")
    return Ask(
        options=EngineOptions(**config["engine"]),
        prompts={"": read_text_prompt("construction", "annotate", *fields, folder=config["prompts"])},
        values=turn_values,
        read=read,
        pretended={"target": "No.", "label": FAITHFUL, "spans": [], "rationale": ""},
        decoding=sampling(0, block["max_judgement_tokens"], 0),
        build=build,
        choices=CHOICES if block["weigh_verdicts"] else (),
    )


def detect_hallucinations(path: str, labels: Mapping[int | str, str] | None = None) -> Detect:
    """Judges the row's response with a detector, and quotes the spans it marks after the verdict."""

    def read(row: Row, prediction: Prediction) -> Row:
        require_verdict(prediction)
        example = replace(example_of(row, row["response"]), label=prediction.label, spans=prediction.spans)
        spans = [[span.start, span.end] for span in prediction.spans]
        judged = {"target": target_text(example, JUDGEMENT), "label": prediction.label, "spans": spans}
        return {**row, **judged, "rationale": "", "score": prediction.score}

    return Detect(path=path, text="response", read=read, precision="32-true", labels=labels)


def run_rag(run: RunFolder, config: Mapping[str, Any]) -> None:
    """Generates the responses, one step for each model, and writes them in RAGTruth's layout."""
    block, folder = config["pipeline"], config["prompts"]
    prompts = {task: read_text_prompt("construction", *names, folder=folder) for task, names in PROMPTS.items()}
    sources = rag_source(block["path"], config["limit"], block["on_bad_row"], block["embedded_rows"])
    rules = {task: ReplyRules(language=block["language"], instruction=prompt.text) for task, prompt in prompts.items()}

    def read(row: Row, reply: ModelReply, model: str) -> Row:
        text = reply.text.strip()
        fault = rules[row["task"]].fault(text, finished=reply.finished)
        if fault not in QUALITY:
            raise RowFailed(str(fault), text)
        made = {"model": model, "temperature": block["temperature"], "quality": QUALITY[fault], "response": text}
        return {KEY: row[KEY], "source_id": row[KEY], **made}

    steps: list[Step] = [sources]
    for model, options in writers_of(config).items():
        work = Ask(
            options=options,
            prompts=prompts,
            which="task",
            values=partial(prompt_values, nulls=block["nulls"]),
            read=partial(read, model=model),
            pretended={"response": f"(what {model} replies)"},
            decoding=sampling(block["temperature"], block["max_new_tokens"], config["seed"]),
            build=build_model,
        )
        limits = {"language": block["language"], "nulls": block["nulls"]}
        steps.append(Step(name=f"respond-{model}", work=work, after=(INPUTS,), branch=model, settings=limits))

    def prompt_of(row: Row) -> str:
        return prompts[row["task"]].fill(**prompt_values(row, block["nulls"]))

    def write(folder: Path, chain: Chain, division: Division) -> Mapping[str, int]:
        return write_ragtruth(folder, chain.rows(INPUTS), responses(chain), division, prompt_of)

    build_benchmark(run, config, steps, responses, write, group="source_id", fields=("response",))


def responses(chain: Chain) -> Iterator[Row]:
    """Yields the responses of all models, source by source."""
    return usable_rows(chain.join_branches([step.name for step in chain.steps.values() if step.after]))


def rag_source(
    path: str, limit: int | None = None, on_bad_row: str = "stop", embedded_rows: Mapping[str, int] | None = None
) -> Step:
    """Makes the first step, which reads the sources of a file.

    Args:
        path: The file, the folder with `source_info.jsonl`, or `embedded`.
        limit: Reads only the first sources.

    Raises:
        UserError: The file does not exist.
    """
    if path == EMBEDDED:
        from data_modules.embedded.layouts import written_layout

        path = str(written_layout("ragtruth", embedded_rows))
    place = Path(path).expanduser()
    file = place / SOURCES if place.is_dir() else place
    if not file.is_file():
        raise UserError("no file of sources", place=str(file), hint=f"set pipeline.path to a {SOURCES}")

    def rows() -> Iterator[Row]:
        report, number = ReadReport(on_bad_row), 0
        for row, source_id in rows_with_ids(file, "source_id", SOURCE_FIELDS, report):
            if number == limit:
                return
            try:
                task, info = row.choice("task_type", TASKS), row.values["source_info"]
                if task == SUMMARY:
                    row.text("source_info")
                else:
                    inside = row.inside(info)  # refuses what is not an object
                    if task == QA:
                        inside.text("question"), inside.text("passages")
                made = {"task": task, "corpus": row.text("source", empty_ok=True), "source_info": info}
            except BadRow as error:
                report.reject(row.file, row.line, error, row.values)
                continue
            number += 1
            yield {KEY: source_id, **made}

    content = hash_file(file)
    return Step(name=INPUTS, read=rows, settings={"limit": limit, "content": content})


def prompt_values(row: Row, nulls: str) -> dict[str, str]:
    """Gives the values of a source for its task's prompt.

    Args:
        nulls: KEEP shows empty fields as `null`, which models take for "no"; DROP leaves them out.
    """
    info = row["source_info"]
    if row["task"] == QA:
        return {"question": info["question"], "passages": info["passages"]}
    if row["task"] == SUMMARY:
        words = max(1, min(MAX_WORDS, len(info.split()) // WORD_RATIO))
        return {"max_words": str(words), "document": info}
    shown = without_nulls(info) if nulls == DROP else info
    return {"data": json.dumps(shown, ensure_ascii=False, indent=1)}


def without_nulls(value: Any) -> Any:
    """Removes the fields of an object that are null, and objects that have no others."""
    if isinstance(value, Mapping):
        kept = {key: without_nulls(inner) for key, inner in value.items() if inner is not None}
        return {key: inner for key, inner in kept.items() if not (inner == {} and value[key] != {})}
    return [without_nulls(inner) for inner in value if inner is not None] if isinstance(value, list) else value
