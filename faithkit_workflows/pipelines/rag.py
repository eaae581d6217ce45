"""RAGTruth's responses (Niu et al. 2024, section 3.1): each model answers, summarizes and describes from sources.

Each model gives one reply to a source. A refusal is kept with the quality `incorrect_refusal` and a cut reply with
`truncated`, as in the release; readers leave both out. Only a person can say whether a refusal is right: each gets
that mark. A reply that is empty, repeats the prompt or is in another language fails.

The sources are in a file with one JSON object per line, as RAGTruth's `source_info.jsonl`: `source_id`, `task_type`
(QA, Summary, Data2txt), `source_info` (an object of `question` and `passages`; a text; any object), and optionally
`source`, the name of the corpus.
"""

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from construction.ask import CUT, REFUSAL, Ask, ModelReply, ReplyRules, sampling
from construction.chain import Chain
from construction.official_layouts import GOOD, REFUSED, TRUNCATED, write_ragtruth
from construction.steps import KEY, AnyStep, Division, Row, RowFailed, Source, Step, usable_rows
from data_modules.datasets.ragtruth import SOURCE_FIELDS, SOURCES, TASKS, rows_with_ids
from data_modules.reading.rows import BadRow, ReadReport
from faithkit.errors import UserError
from faithkit.files.atomic import hash_file
from faithkit.files.run_folder import RunFolder
from faithkit.inference.prompts import read_text_prompt
from faithkit.settings.config_files import EMBEDDED
from faithkit_workflows.pipelines.run_chain import build_benchmark, build_model, writers_of

QA, SUMMARY, DATA = "QA", "Summary", "Data2txt"
MAX_WORDS, WORD_RATIO = 200, 4  # of a summary: at most 200 words and a quarter of the text's (RAGTruth, Table 9)
KEEP, DROP = "keep", "drop"
PROMPTS = {
    QA: ("rag_qa", "question", "passages"),
    SUMMARY: ("rag_summary", "max_words", "document"),
    DATA: ("rag_data", "data"),
}
QUALITY = {None: GOOD, REFUSAL: REFUSED, CUT: TRUNCATED}


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

    steps: list[AnyStep] = [sources]
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
        steps.append(Step(name=f"respond-{model}", work=work, after=("inputs",), branch=model, settings=limits))

    def prompt_of(row: Row) -> str:
        return prompts[row["task"]].fill(**prompt_values(row, block["nulls"]))

    def write(folder: Path, chain: Chain, division: Division) -> Mapping[str, int]:
        return write_ragtruth(folder, chain.rows("inputs"), responses(chain), division, prompt_of)

    build_benchmark(run, config, steps, responses, write, group="source_id", fields=("response",))


def responses(chain: Chain) -> Iterator[Row]:
    """Yields the responses of all models, source by source."""
    return usable_rows(chain.join_branches([step.name for step in chain.steps.values() if step.after]))


def rag_source(
    path: str, limit: int | None = None, on_bad_row: str = "stop", embedded_rows: Mapping[str, int] | None = None
) -> Source:
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
    return Source(name="inputs", read=rows, settings={"limit": limit, "content": content})


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
