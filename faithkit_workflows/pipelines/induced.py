"""HalluDial's induced scenario (Luo et al. 2024, section 2.2): a model is told to hallucinate, and says where and why.

For each turn there is a factual hallucination (it contradicts the knowledge), one of faithfulness (the knowledge does
not support it), each in one reply with its explanation at temperature 1, and the dataset's own reply as the faithful
one. What breaks the rules (six words more than the reference at most, a quoted part that stands in the reply) is a
hole, and counted.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from construction.chain.ask import Ask, Said, sampling
from construction.chain.chain_rows import AT, KEY, Row, hole, is_hole
from construction.chain.replies import ReplyRules
from construction.chain.runner import AnyStep, Chain, Source
from construction.dialogues.turn_rows import DialogueTurns, history_of, last_turn
from construction.halludial import INDUCED, write_halludial
from construction.induced import KINDS, NO_EXPLANATION, induced_fault, read_induced
from faithkit.files.atomic import atomic_folder
from faithkit.files.run_folder import RunFolder
from faithkit.inference.prompts import TextPrompt, read_text_prompt
from faithkit.inference.text_engines import EngineOptions
from faithkit.records import FAITHFUL, HALLUCINATED
from faithkit_workflows.pipelines.models import build_model, writers_of
from faithkit_workflows.pipelines.run_chain import ask_step, run_chain
from faithkit_workflows.pipelines.written import OUTPUT, division_of, tell_written
from judge.locate import locate_all
from judge.reply import quoted_parts

NOT_LOCATED = "the quoted part is not in the reply"
FAITHFUL_TARGET = "No."  # of the reference, as the release has it


def run_induced(run: RunFolder, config: Mapping[str, Any]) -> None:
    """Has hallucinations written, and writes them beside the faithful replies in HalluDial's layout."""
    chain = run_chain(run, config, induced_steps(config))
    if chain is not None:
        with atomic_folder(run.path / OUTPUT, replace=True) as folder:
            counts = write_halludial(folder, INDUCED, induced_rows(chain), division_of(config))
        tell_written(run, config, chain, counts, lambda: induced_rows(chain))


def induced_steps(config: Mapping[str, Any]) -> list[AnyStep]:
    """The steps: one for each kind of hallucination and each model."""
    block = config["pipeline"]
    turns = DialogueTurns(block, config["limit"])
    steps: list[AnyStep] = [Source(name="inputs", read=turns.rows, settings=turns.settings())]
    writers = writers_of(config)
    for kind in block["kinds"]:
        prompt = read_text_prompt(
            "construction", f"induced_{kind}", "knowledge", "history", "reference", folder=config["prompts"]
        )
        for model, options in writers.items():
            ask = induce(f"{kind}-{model}", kind, model, options, prompt, block, config["seed"])
            steps.append(ask_step(ask, after=["inputs"], branch=f"{kind}-{model}", language=block["language"]))
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
    assert kind in KINDS, "the settings take no other"
    rules = ReplyRules(language=block["language"], instruction=prompt.text)

    def values(row: Row) -> dict[str, str]:
        return {"knowledge": row["knowledge"], "history": history_of(row), "reference": row["reference"]}

    def read(row: Row, said: Said) -> Row:
        found = read_induced(said.text)
        reply, explanation = found or (said.text, "")
        fault = rules.fault(reply, last_turn=last_turn(row)) or (None if found else NO_EXPLANATION)
        fault = fault or induced_fault(reply, row["reference"])
        if fault is not None:
            return hole(row[KEY], step, fault, said.text)
        spans, _ = locate_all(quoted_parts(explanation), reply)
        if not spans:
            return hole(row[KEY], step, NOT_LOCATED, said.text)
        made = {"kind": kind, "model": model, "response": reply, "target": f"Yes. {explanation}"}
        cut = {} if said.finished else {"target_cut": True}
        return {**row, **made, "label": HALLUCINATED, "spans": [[span.start, span.end] for span in spans], **cut}

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
    """Yields the hallucinations of each turn, and its faithful reply where there is one of them."""
    branches = [step.name for step in chain.steps.values() if step.after]
    for before, *made in zip(chain.rows("inputs"), *map(chain.rows, branches), strict=True):
        assert {row[KEY] for row in made} == {before[KEY]}, "branches are joined by key"
        kept = [
            {**row, KEY: f"{row[KEY]}{AT}{name}"} for name, row in zip(branches, made, strict=True) if not is_hole(row)
        ]
        yield from kept
        if kept:
            faithful = {"response": before["reference"], "target": FAITHFUL_TARGET, "label": FAITHFUL, "spans": []}
            yield {**before, **faithful, KEY: f"{before[KEY]}{AT}reference"}
