"""HalluDial's spontaneous scenario (Luo et al. 2024, section 2.1): models reply, and a judge annotates the replies.

Steps: each model replies to each turn at `temperature`. The model of `engine` (or a detector) judges each reply at
temperature 0, with three examples and the reference reply in the prompt: a verdict, the hallucinated part, and why.
"""

from collections.abc import Mapping
from typing import Any

from construction.chain.ask import Ask, Build, EnginePool, ModelReply, sampling
from construction.chain.replies import ReplyRules, cut_turns
from construction.chain.steps import KEY, AnyStep, Row, Source, Step, failed_row, usable_rows
from construction.dialogues.dialogue_turns import DialogueTurns, history_of, last_turn
from construction.official_layouts import SPONTANEOUS, write_halludial
from faithkit.files.atomic import atomic_folder
from faithkit.files.run_folder import RunFolder
from faithkit.inference.prompts import TextPrompt, read_text_prompt
from faithkit.inference.text_engines import EngineOptions
from faithkit_workflows.pipelines.judgements import ANNOTATE, FIELDS, ask_judge, detect_hallucinations
from faithkit_workflows.pipelines.run_chain import (
    OUTPUT,
    annotator_of,
    build_model,
    division_of,
    report_written,
    run_chain,
    writers_of,
)


def run_spontaneous(run: RunFolder, config: Mapping[str, Any]) -> None:
    """Samples replies, annotates them, and writes both in HalluDial's layout."""
    chain = run_chain(run, config, spontaneous_steps(config))
    if chain is not None:
        with atomic_folder(run.path / OUTPUT, replace=True) as folder:
            rows = usable_rows(chain.rows(ANNOTATE))
            counts = write_halludial(folder, SPONTANEOUS, rows, division_of(config))
        report_written(run, config, chain, counts, lambda: usable_rows(chain.rows(ANNOTATE)))


def spontaneous_steps(config: Mapping[str, Any]) -> list[AnyStep]:
    """Makes the steps, one sampling step for each model."""
    block, folder = config["pipeline"], config["prompts"]
    build = EnginePool(build_model, places=1)  # a model that replies and judges is loaded once
    turns = DialogueTurns(block, config["limit"])
    steps: list[AnyStep] = [Source(name="inputs", read=turns.rows, settings=turns.settings())]
    prompt = read_text_prompt("construction", "reply", "max_words", "knowledge", "history", folder=folder)
    for model, options in writers_of(config).items():
        ask = sample_reply(f"sample-{model}", model, options, prompt, block, config["seed"], build)
        rules = {"max_words": block["max_words"], "language": block["language"]}
        steps.append(ask.as_step(after=["inputs"], branch=model, **rules))
    samplers = [step.name for step in steps[1:]]
    if block["detector"]:
        work = detect_hallucinations(block["detector"], config["labels"])
        settings = {} if config["dry_run"] else work.settings()  # a dry run needs no existing detector
        return [*steps, Step(name=ANNOTATE, work=work, settings=settings, after=tuple(samplers))]
    judge_prompt = read_text_prompt("construction", "annotate", *FIELDS, folder=folder)
    return [*steps, ask_judge(annotator_of(config), judge_prompt, block, build).as_step(after=samplers)]


def sample_reply(
    step: str,
    model: str,
    options: EngineOptions,
    prompt: TextPrompt,
    block: Mapping[str, Any],
    seed: int,
    build: Build = build_model,
) -> Ask:
    """Asks a model for its reply; one that breaks the rules of construction/chain/replies.py makes a failed row."""
    rules = ReplyRules(max_words=block["max_words"], language=block["language"], instruction=prompt.text)

    def values(row: Row) -> dict[str, str]:
        return {"max_words": str(block["max_words"]), "knowledge": row["knowledge"], "history": history_of(row)}

    def read(row: Row, reply: ModelReply) -> Row:
        text, was_cut = cut_turns(reply.text)
        fault = rules.fault(text, finished=reply.finished or was_cut, last_turn=last_turn(row))
        if fault is not None:
            return failed_row(row[KEY], step, fault, reply.text)
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
