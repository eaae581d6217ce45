"""HalluDial's spontaneous scenario (Luo et al. 2024, section 2.1): models reply, then a judge annotates what they said.

Steps: the turns of a dataset of dialogues; for each model its reply, at temperature 1; each reply's judgement, at
temperature 0, with three examples and the reference reply in the prompt: a verdict, the hallucinated part, and why.
"""

import logging
from collections.abc import Mapping
from typing import Any

from construction.ask import Ask, sampling
from construction.chain import AnyStep, Source
from construction.dialogues import DialogueTurns, history_of, last_turn
from construction.divide import Division
from construction.halludial import write_halludial
from construction.replies import EMPTY, ReplyRules, cut_turns
from construction.rows import KEY, Row, hole, without_holes
from faithkit.files.run_folder import RunFolder
from faithkit.inference.prompts import TextPrompt, read_text_prompt
from faithkit.inference.text_engines import EngineOptions
from faithkit.records import UNPARSED
from judge.asking import read_judgement
from workflows.pipelines.models import annotator_of, writers_of
from workflows.pipelines.run_chain import ask_step, run_chain

SAMPLE, ANNOTATE = "sample", "annotate"
OUTPUT = "benchmark"  # in the run's folder: the official layout
log = logging.getLogger("faithkit")


def run_spontaneous(run: RunFolder, config: Mapping[str, Any]) -> None:
    """Samples replies, annotates them, and writes both in HalluDial's layout."""
    chain = run_chain(run, config, spontaneous_steps(config))
    if chain is None:
        return
    division = Division({"test": config["pipeline"]["test_fraction"]}, config["seed"])
    counts = write_halludial(run.path / OUTPUT, "spontaneous", without_holes(chain.rows(ANNOTATE)), division)
    log.info("%s: %s", run.path / OUTPUT, ", ".join(f"{split} {number:,}" for split, number in counts.items()))


def spontaneous_steps(config: Mapping[str, Any]) -> list[AnyStep]:
    """The steps, one to sample for each model."""
    block, folder = config["pipeline"], config["prompts"]
    turns = DialogueTurns(block, config["limit"])
    inputs = Source(name="inputs", read=turns.rows, settings=turns.settings())
    reply = read_text_prompt("construction", "reply", "max_words", "knowledge", "history", folder=folder)
    steps: list[AnyStep] = [inputs]
    for name, options in writers_of(config).items():
        ask = sample_reply(f"{SAMPLE}-{name}", name, options, reply, block, config["seed"])
        steps.append(ask_step(ask.step, ask, after=[inputs.name], branch=name, max_words=block["max_words"]))
    samplers = [step.name for step in steps[1:]]
    fields = ("knowledge", "history", "reference", "response")
    prompt = read_text_prompt("construction", "annotate", *fields, folder=folder)
    steps.append(ask_step(ANNOTATE, annotate(annotator_of(config), prompt, block), after=samplers))
    return steps


def sample_reply(
    step: str, model: str, options: EngineOptions, prompt: TextPrompt, block: Mapping[str, Any], seed: int
) -> Ask:
    """Asks a model for its reply; one that cannot be used is a hole, by the rules of construction/replies.py."""
    rules = ReplyRules(max_words=block["max_words"], language=block["language"], instruction=prompt.text)

    def values(row: Row) -> dict[str, str]:
        return {"max_words": str(block["max_words"]), "knowledge": row["knowledge"], "history": history_of(row)}

    def read(row: Row, text: str, finished: bool) -> Row:
        said, was_cut = cut_turns(text)
        fault = rules.fault(said, finished=finished or was_cut, last_turn=last_turn(row))
        if fault is not None:
            return hole(row[KEY], step, fault, "" if fault == EMPTY else said)
        return {**row, "model": model, "response": said, **({"cut_turns": True} if was_cut else {})}

    return Ask(
        step=step,
        options=options,
        prompt=prompt,
        values=values,
        read=read,
        pretend=lambda row: {**row, "model": model, "response": f"(what {model} replies)"},
        decoding=sampling(block["temperature"], block["max_new_tokens"], seed),
    )


def annotate(options: EngineOptions, prompt: TextPrompt, block: Mapping[str, Any]) -> Ask:
    """Asks the judge; a reply without a verdict is a hole, and a quoted part that is not in the reply is counted."""

    def values(row: Row) -> dict[str, str]:
        return {**{name: row[name] for name in ("knowledge", "reference", "response")}, "history": history_of(row)}

    def read(row: Row, text: str, finished: bool) -> Row:
        found = read_judgement(text, row["response"])
        if found.label == UNPARSED:
            return hole(row[KEY], ANNOTATE, "no verdict", text)
        spans = [[span.start, span.end] for span in found.spans]
        unlocated = {"unlocated": found.num_unlocated} if found.num_unlocated else {}
        judged = {"label": found.label, "spans": spans, "rationale": found.rationale, **unlocated}
        return {**row, "target": text.strip(), **judged, **({} if finished else {"target_cut": True})}

    return Ask(
        step=ANNOTATE,
        options=options,
        prompt=prompt,
        values=values,
        read=read,
        pretend=lambda row: {**row, "target": "No.", "label": "faithful", "spans": [], "rationale": ""},
        decoding=sampling(0, block["max_judgement_tokens"], 0),
    )
