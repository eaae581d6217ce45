"""HalluDial's spontaneous scenario (Luo et al. 2024, section 2.1): models reply, then a judge annotates what they said.

Steps: the turns of a dataset of dialogues; for each model its reply, at temperature 1; each reply's judgement, at
temperature 0, with three examples and the reference reply in the prompt: a verdict, the hallucinated part, and why.
"""

from collections.abc import Mapping
from typing import Any

from construction.chain.ask import Ask, Said, sampling
from construction.chain.chain_rows import KEY, Row, hole, without_holes
from construction.chain.engine_pool import Build, KeptEngines
from construction.chain.replies import ReplyRules, cut_turns
from construction.chain.runner import AnyStep, Source, Step
from construction.dialogues.turn_rows import DialogueTurns, history_of, last_turn
from construction.halludial import SPONTANEOUS, write_halludial
from faithkit.files.atomic import atomic_folder
from faithkit.files.run_folder import RunFolder
from faithkit.inference.prompts import TextPrompt, read_text_prompt
from faithkit.inference.text_engines import EngineOptions
from faithkit_workflows.pipelines.judgements import ANNOTATE, FIELDS, annotation, detection
from faithkit_workflows.pipelines.models import annotator_of, build_model, writers_of
from faithkit_workflows.pipelines.run_chain import ask_step, run_chain
from faithkit_workflows.pipelines.written import OUTPUT, division_of, tell_written

SAMPLE = "sample"


def run_spontaneous(run: RunFolder, config: Mapping[str, Any]) -> None:
    """Samples replies, annotates them, and writes both in HalluDial's layout."""
    chain = run_chain(run, config, spontaneous_steps(config))
    if chain is not None:
        rows = without_holes(chain.rows(ANNOTATE))
        with atomic_folder(run.path / OUTPUT, replace=True) as folder:
            counts = write_halludial(folder, SPONTANEOUS, rows, division_of(config))
        tell_written(run, config, chain, counts, lambda: without_holes(chain.rows(ANNOTATE)))


def spontaneous_steps(config: Mapping[str, Any]) -> list[AnyStep]:
    """The steps, one to sample for each model."""
    block, folder = config["pipeline"], config["prompts"]
    build = KeptEngines(build_model, places=1)  # one model that replies and judges is loaded once
    turns = DialogueTurns(block, config["limit"])
    steps: list[AnyStep] = [Source(name="inputs", read=turns.rows, settings=turns.settings())]
    reply = read_text_prompt("construction", "reply", "max_words", "knowledge", "history", folder=folder)
    for name, options in writers_of(config).items():
        ask = sample_reply(f"{SAMPLE}-{name}", name, options, reply, block, config["seed"], build)
        rules = {"max_words": block["max_words"], "language": block["language"]}
        steps.append(ask_step(ask, after=["inputs"], branch=name, **rules))
    samplers = [step.name for step in steps[1:]]
    if block["detector"]:
        work = detection(block["detector"], config["labels"])
        settings = {} if config["dry_run"] else work.settings()  # a dry run asks for no detector that is there
        return [*steps, Step(name=ANNOTATE, work=work, settings=settings, after=tuple(samplers))]
    prompt = read_text_prompt("construction", "annotate", *FIELDS, folder=folder)
    return [*steps, ask_step(annotation(annotator_of(config), prompt, block, build), after=samplers)]


def sample_reply(
    step: str,
    model: str,
    options: EngineOptions,
    prompt: TextPrompt,
    block: Mapping[str, Any],
    seed: int,
    build: Build = build_model,
) -> Ask:
    """Asks a model for its reply; one that cannot be used is a hole, by the rules of construction/chain/replies.py."""
    rules = ReplyRules(max_words=block["max_words"], language=block["language"], instruction=prompt.text)

    def values(row: Row) -> dict[str, str]:
        return {"max_words": str(block["max_words"]), "knowledge": row["knowledge"], "history": history_of(row)}

    def read(row: Row, said: Said) -> Row:
        text, was_cut = cut_turns(said.text)
        fault = rules.fault(text, finished=said.finished or was_cut, last_turn=last_turn(row))
        if fault is not None:
            return hole(row[KEY], step, fault, said.text)
        return {**row, "model": model, "response": text, **({"further_turns_cut": True} if was_cut else {})}

    return Ask(
        step=step,
        options=options,
        prompts={prompt.name: prompt},
        values=values,
        read=read,
        pretend=lambda row: {**row, "model": model, "response": f"(what {model} replies)"},
        decoding=sampling(block["temperature"], block["max_new_tokens"], seed),
        build=build,
    )
