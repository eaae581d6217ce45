"""RAGTruth's responses (Niu et al. 2024, section 3.1): each model answers, summarizes and describes from sources.

One reply a model and source. A reply that refuses is kept as `incorrect_refusal` and one that was cut off as
`truncated`, as the release has them, and its readers leave both out. Whether a refusal is right, only a person tells:
every refusal gets that mark. Replies that are empty, repeat the prompt or are in another language are holes. What
denies a field that the data leave null is listed for annotators (`null_mentions`).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from construction.chain.ask import Ask, Said, sampling
from construction.chain.chain_rows import AT, KEY, Row, hole, is_hole
from construction.chain.replies import CUT, REFUSAL, ReplyRules
from construction.chain.runner import AnyStep, Chain, Source
from construction.rag_sources import DATA, QA, SUMMARY, RagSources, null_mentions, prompt_values
from construction.ragtruth import GOOD, REFUSED, TRUNCATED, write_ragtruth
from faithkit.files.atomic import atomic_folder
from faithkit.files.run_folder import RunFolder
from faithkit.inference.prompts import TextPrompt, read_text_prompt
from faithkit.inference.text_engines import EngineOptions
from faithkit_workflows.pipelines.models import build_model, writers_of
from faithkit_workflows.pipelines.run_chain import ask_step, run_chain
from faithkit_workflows.pipelines.written import OUTPUT, division_of, tell_written

RESPOND = "respond"
PROMPTS = {
    QA: ("rag_qa", "question", "passages"),
    SUMMARY: ("rag_summary", "max_words", "document"),
    DATA: ("rag_data", "data"),
}
QUALITY = {None: GOOD, REFUSAL: REFUSED, CUT: TRUNCATED}


def run_rag(run: RunFolder, config: Mapping[str, Any]) -> None:
    """Has the models respond, and writes the responses in RAGTruth's layout."""
    prompts = read_prompts(config)
    chain = run_chain(run, config, rag_steps(config, prompts))
    if chain is None:
        return
    nulls = config["pipeline"]["nulls"]

    def asked(row: Row) -> str:
        return prompts[row["task"]].fill(**prompt_values(row, nulls))

    division = division_of(config)
    with atomic_folder(run.path / OUTPUT, replace=True) as folder:
        counts = write_ragtruth(folder, chain.rows("inputs"), responses(chain), division, asked)
    tell_written(run, config, chain, counts, lambda: responses(chain), group="source_id", fields=("response",))


def read_prompts(config: Mapping[str, Any]) -> dict[str, TextPrompt]:
    """The prompts by task."""
    folder = config["prompts"]
    return {task: read_text_prompt("construction", *names, folder=folder) for task, names in PROMPTS.items()}


def rag_steps(config: Mapping[str, Any], prompts: Mapping[str, TextPrompt]) -> list[AnyStep]:
    """The steps, one for each model."""
    block = config["pipeline"]
    sources = RagSources(block["path"], config["limit"], block["on_bad_row"], block["embedded_rows"])
    steps: list[AnyStep] = [Source(name="inputs", read=sources.rows, settings=sources.settings())]
    for model, options in writers_of(config).items():
        ask = respond(f"{RESPOND}-{model}", model, options, prompts, block, config["seed"])
        own = {"language": block["language"], "nulls": block["nulls"]}
        steps.append(ask_step(ask, after=["inputs"], branch=model, **own))
    return steps


def respond(
    step: str,
    model: str,
    options: EngineOptions,
    prompts: Mapping[str, TextPrompt],
    block: Mapping[str, Any],
    seed: int,
) -> Ask:
    """Asks a model for its response to each source."""
    rules = {task: ReplyRules(language=block["language"], instruction=own.text) for task, own in prompts.items()}

    def read(row: Row, said: Said) -> Row:
        text = said.text.strip()
        fault = rules[row["task"]].fault(text, finished=said.finished)
        if fault not in QUALITY:
            return hole(row[KEY], step, str(fault), text)
        made = {"model": model, "temperature": block["temperature"], "quality": QUALITY[fault], "response": text}
        return {KEY: row[KEY], "source_id": row[KEY], **made, "null_mentions": null_mentions(row, text)}

    return Ask(
        step=step,
        options=options,
        prompts=prompts,
        which=lambda row: str(row["task"]),
        values=lambda row: prompt_values(row, block["nulls"]),
        read=read,
        pretend=lambda row: {**row, "response": f"(what {model} replies)"},
        decoding=sampling(block["temperature"], block["max_new_tokens"], seed),
        build=build_model,
    )


def responses(chain: Chain) -> Iterator[Row]:
    """Yields the responses of all models to each source, source by source."""
    branches = {step.name: step.branch for step in chain.steps.values() if step.after}
    for rows in zip(*map(chain.rows, branches), strict=True):
        assert len({row[KEY] for row in rows}) == 1, "branches are joined by key"
        for row, branch in zip(rows, branches.values(), strict=True):
            if not is_hole(row):
                yield {**row, KEY: f"{row[KEY]}{AT}{branch}"}
