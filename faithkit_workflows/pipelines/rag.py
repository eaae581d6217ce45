"""RAGTruth's responses (Niu et al. 2024, section 3.1): each model answers, summarizes and describes from sources.

Each model gives one reply to a source. A refusal is kept with the quality `incorrect_refusal` and a cut reply with
`truncated`, as in the release; readers leave both out. Only a person can say whether a refusal is right: each gets
that mark. A reply that is empty, repeats the prompt or is in another language fails.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from construction.chain.ask import Ask, ModelReply, sampling
from construction.chain.chain import Chain
from construction.chain.replies import CUT, REFUSAL, ReplyRules
from construction.chain.steps import KEY, AnyStep, Row, RowFailed, Source, Step, usable_rows
from construction.official_layouts import GOOD, REFUSED, TRUNCATED, write_ragtruth
from construction.rag_sources import DATA, QA, SUMMARY, RagSources, prompt_values
from faithkit.files.atomic import atomic_folder
from faithkit.files.run_folder import RunFolder
from faithkit.inference.prompts import TextPrompt, read_text_prompt
from faithkit_workflows.pipelines.run_chain import (
    OUTPUT,
    build_model,
    division_of,
    report_written,
    run_chain,
    writers_of,
)

PROMPTS = {
    QA: ("rag_qa", "question", "passages"),
    SUMMARY: ("rag_summary", "max_words", "document"),
    DATA: ("rag_data", "data"),
}
QUALITY = {None: GOOD, REFUSAL: REFUSED, CUT: TRUNCATED}


def run_rag(run: RunFolder, config: Mapping[str, Any]) -> None:
    """Generates the responses, and writes them in RAGTruth's layout."""
    prompts = read_prompts(config)
    chain = run_chain(run, config, rag_steps(config, prompts))
    if chain is None:
        return
    nulls = config["pipeline"]["nulls"]

    def prompt_of(row: Row) -> str:
        return prompts[row["task"]].fill(**prompt_values(row, nulls))

    with atomic_folder(run.path / OUTPUT, replace=True) as folder:
        counts = write_ragtruth(folder, chain.rows("inputs"), responses(chain), division_of(config), prompt_of)
    report_written(run, config, chain, counts, lambda: responses(chain), group="source_id", fields=("response",))


def read_prompts(config: Mapping[str, Any]) -> dict[str, TextPrompt]:
    """Reads the prompts of all tasks."""
    folder = config["prompts"]
    return {task: read_text_prompt("construction", *names, folder=folder) for task, names in PROMPTS.items()}


def rag_steps(config: Mapping[str, Any], prompts: Mapping[str, TextPrompt]) -> list[AnyStep]:
    """Makes the steps, one for each model."""
    block = config["pipeline"]
    sources = RagSources(block["path"], config["limit"], block["on_bad_row"], block["embedded_rows"])
    rules = {task: ReplyRules(language=block["language"], instruction=prompt.text) for task, prompt in prompts.items()}

    def read(row: Row, reply: ModelReply, model: str) -> Row:
        text = reply.text.strip()
        fault = rules[row["task"]].fault(text, finished=reply.finished)
        if fault not in QUALITY:
            raise RowFailed(str(fault), text)
        made = {"model": model, "temperature": block["temperature"], "quality": QUALITY[fault], "response": text}
        return {KEY: row[KEY], "source_id": row[KEY], **made}

    steps: list[AnyStep] = [Source(name="inputs", read=sources.rows, settings=sources.settings())]
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
    return steps


def responses(chain: Chain) -> Iterator[Row]:
    """Yields the responses of all models, source by source."""
    return usable_rows(chain.join_branches([step.name for step in chain.steps.values() if step.after]))
