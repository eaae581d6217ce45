"""Runs a pipeline's chain: or shows what it would ask, in a dry run."""

from collections.abc import Mapping, Sequence
from typing import Any

from construction.chain.ask import Ask
from construction.chain.dry_run import show_dry_run
from construction.chain.runner import AnyStep, Chain, Step
from faithkit.environment import environment
from faithkit.files.atomic import write_text
from faithkit.files.run_folder import RunFolder

PROMPTS = "prompts"  # in the run's folder: each prompt that was used, by its hash


def run_chain(run: RunFolder, config: Mapping[str, Any], steps: Sequence[AnyStep]) -> Chain | None:
    """Makes the rows of all steps; gives the chain whose last step is read, or None after a dry run."""
    if config["dry_run"]:
        show_dry_run(steps)
        return None
    chain = Chain(run.path, config["pipeline"]["name"], steps, environment())
    for step in steps:
        for prompt in step.work.prompts.values() if isinstance(step, Step) and isinstance(step.work, Ask) else ():
            path = run.path / PROMPTS / f"{prompt.name}-{prompt.fingerprint}.txt"
            write_text(path, f"{prompt.system}\n\n{prompt.text}" if prompt.system else prompt.text)
    chain.run(retry_holes=config["retry_holes"])
    return chain


def ask_step(ask: Ask, *, after: Sequence[str], branch: str = "", version: int = 1, **settings: Any) -> Step:
    """Makes the step of an `Ask`.

    Args:
        settings: What its rows depend on beside the model, the prompts and the decoding.
    """
    return Step(
        name=ask.step,
        work=ask,
        settings=ask.settings(**settings),
        after=tuple(after),
        branch=branch,
        portion=ask.portion,
        version=version,
    )
