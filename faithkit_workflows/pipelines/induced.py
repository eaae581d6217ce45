"""HalluDial's induced scenario (Luo et al. 2024, section 2.2): models are instructed to hallucinate and to explain it.

Each turn gets a factual hallucination (it contradicts the knowledge) and one of faithfulness (the knowledge does not
support it), each with its explanation from one reply at temperature 1. The dataset's reference is the faithful reply.
A hallucination that has over six words more than the reference, or whose quoted part is not in the reply, fails.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from construction.chain.ask import Ask, ModelReply, sampling
from construction.chain.chain import Chain
from construction.chain.replies import NO_EXPLANATION, ReplyRules, find_induced_fault, read_induced
from construction.chain.steps import AT, KEY, AnyStep, Row, Source, failed_row, usable_rows
from construction.dialogues.dialogue_turns import DialogueTurns, history_of, last_turn
from construction.official_layouts import INDUCED, write_halludial
from faithkit.files.atomic import atomic_folder
from faithkit.files.run_folder import RunFolder
from faithkit.inference.prompts import TextPrompt, read_text_prompt
from faithkit.inference.text_engines import EngineOptions
from faithkit.records import FAITHFUL, HALLUCINATED
from faithkit_workflows.pipelines.run_chain import (
    OUTPUT,
    build_model,
    division_of,
    report_written,
    run_chain,
    writers_of,
)
from judge.locate import locate_all
from judge.reply import quoted_parts

NOT_LOCATED = "the quoted part is not in the reply"
FIELDS = ("knowledge", "history", "reference")


def run_induced(run: RunFolder, config: Mapping[str, Any]) -> None:
    """Generates hallucinations, and writes them with the faithful replies in HalluDial's layout."""
    chain = run_chain(run, config, induced_steps(config))
    if chain is not None:
        with atomic_folder(run.path / OUTPUT, replace=True) as folder:
            counts = write_halludial(folder, INDUCED, induced_rows(chain), division_of(config))
        report_written(run, config, chain, counts, lambda: induced_rows(chain))


def induced_steps(config: Mapping[str, Any]) -> list[AnyStep]:
    """Makes the steps, one for each kind of hallucination and each model."""
    block = config["pipeline"]
    turns = DialogueTurns(block, config["limit"])
    steps: list[AnyStep] = [Source(name="inputs", read=turns.rows, settings=turns.settings())]
    for kind in block["kinds"]:
        prompt = read_text_prompt("construction", f"induced_{kind}", *FIELDS, folder=config["prompts"])
        for model, options in writers_of(config).items():
            ask = induce(f"{kind}-{model}", kind, model, options, prompt, block, config["seed"])
            steps.append(ask.as_step(after=["inputs"], branch=ask.step, language=block["language"]))
    return steps


def induce(
    step: str,
    kind: str,
    model: str,
    options: EngineOptions,
    prompt: TextPrompt,
    block: Mapping[str, Any],
    seed: int,
) -> Ask:
    """Asks a model for a hallucination of a kind."""
    rules = ReplyRules(language=block["language"], instruction=prompt.text)

    def values(row: Row) -> dict[str, str]:
        return {"knowledge": row["knowledge"], "history": history_of(row), "reference": row["reference"]}

    def read(row: Row, reply: ModelReply) -> Row:
        found = read_induced(reply.text)
        text, explanation = found or (reply.text, "")
        fault = rules.fault(text, last_turn=last_turn(row)) or (None if found else NO_EXPLANATION)
        fault = fault or find_induced_fault(text, row["reference"])
        spans = [] if fault else locate_all(quoted_parts(explanation), text)[0]
        if fault or not spans:
            return failed_row(row[KEY], step, fault or NOT_LOCATED, reply.text)
        made = {"kind": kind, "model": model, "response": text, "target": f"Yes. {explanation}", "label": HALLUCINATED}
        cut = {} if reply.finished else {"target_cut": True}
        return {**row, **made, "spans": [[span.start, span.end] for span in spans], **cut}

    return Ask(
        step=step,
        options=options,
        prompts={prompt.name: prompt},
        values=values,
        read=read,
        pretend=lambda row: {**row, "response": f"(what {model} makes up)"},
        decoding=sampling(block["temperature"], block["max_new_tokens"], seed),
        build=build_model,
    )


def induced_rows(chain: Chain) -> Iterator[Row]:
    """Yields the hallucinations of each turn, and its faithful reply if there is a hallucination."""
    branches = [step.name for step in chain.steps.values() if step.after]
    joined = chain.join_branches(branches)
    for turn in chain.rows("inputs"):
        hallucinations = list(usable_rows(next(joined) for _ in branches))
        yield from hallucinations
        if hallucinations:
            faithful = {"response": turn["reference"], "target": "No.", "label": FAITHFUL, "spans": []}
            yield {**turn, **faithful, KEY: f"{turn[KEY]}{AT}reference"}
