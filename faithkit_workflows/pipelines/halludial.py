"""HalluDial's two scenarios (Luo et al. 2024, sections 2.1 and 2.2), written in its layout.

Spontaneous: each model replies to each turn at `temperature`. The model of `engine` (or a detector) judges each reply
at temperature 0, with three examples and the reference reply in the prompt: a verdict, the hallucinated part, and why.

Induced: each turn gets a factual hallucination (it contradicts the knowledge) and one of faithfulness (the knowledge
does not support it), each with its explanation from one reply. The dataset's reference is the faithful reply. A
hallucination that has over six words more than the reference, or whose quoted part is not in the reply, fails.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from construction.ask import (
    Ask,
    EnginePool,
    ModelReply,
    ReplyRules,
    cut_turns,
    read_induced,
    sampling,
)
from construction.chain import Chain
from construction.official_layouts import INDUCED, SPONTANEOUS, write_halludial
from construction.steps import AT, KEY, AnyStep, Division, Row, RowFailed, Step, usable_rows
from construction.turns import DialogueTurns, last_turn, turn_values
from faithkit.files.run_folder import RunFolder
from faithkit.inference.prompts import read_text_prompt
from faithkit.inference.text_engines import EngineOptions
from faithkit.records import FAITHFUL, HALLUCINATED
from faithkit_workflows.pipelines.run_chain import (
    FIELDS,
    ask_judge,
    build_benchmark,
    build_model,
    detect_hallucinations,
    writers_of,
)
from judge.reply import locate_all, quoted_parts

INPUTS, ANNOTATE = "inputs", "annotate"


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
        return {**row, "model": model, "response": text, **({"further_turns_cut": True} if was_cut else {})}

    steps: list[AnyStep] = [DialogueTurns(block, config["limit"]).as_source(INPUTS)]
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
        judge_prompt = read_text_prompt("construction", "annotate", *FIELDS, folder=folder)
        judge = ask_judge(EngineOptions(**config["engine"]), judge_prompt, block, build)
    steps.append(Step(name=ANNOTATE, work=judge, after=tuple(step.name for step in steps[1:])))

    def rows(chain: Chain) -> Iterator[Row]:
        return usable_rows(chain.rows(ANNOTATE))

    def write(folder: Path, chain: Chain, division: Division) -> Mapping[str, int]:
        return write_halludial(folder, SPONTANEOUS, rows(chain), division)

    build_benchmark(run, config, steps, rows, write)


def run_induced(run: RunFolder, config: Mapping[str, Any]) -> None:
    """Generates hallucinations, one step for each kind and model, and writes them with the faithful replies."""
    block = config["pipeline"]
    steps: list[AnyStep] = [DialogueTurns(block, config["limit"]).as_source(INPUTS)]
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
    return {**row, **made, "response": text, **judged, **({} if reply.finished else {"target_cut": True})}


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
