"""No key of any configuration takes a block where a value stands, or a negative fraction."""

import pytest
from omegaconf import OmegaConf

from faithkit.settings.config_files import choices_of
from faithkit.settings.overrides import all_keys
from tests.faults.command_lines import BASE
from tests.faults.command_places import Places, command_line, refusal

NONSENSE = ("{odd:[1]}", "-7.5")
# The groups whose choices bring keys of their own, with what these need.
GROUPS: dict[str, dict[str, tuple[str, ...]]] = {
    "train": {
        **{"model": (), "data": (), "logger": (), "sweep": ()},
        **{"objective": ("model=t5",), "control": ("model=t5",)},
    },
    "evaluate": {"benchmark": (), "engine": ("checkpoint=null", "engine.model=smollm2-135m"), "decoding": ()},
    "generate": {"engine": (), "decoding": (), "data": ()},
    "score": {},
    "chat": {"decoding": ()},
    "export": {},
}
CHOICES = [(script, ()) for script in GROUPS] + [
    (script, (*others, f"{group}={choice}"))
    for script, groups in GROUPS.items()
    for group, others in groups.items()
    for choice in choices_of(group)
]
# Blocks that a configuration's own files fill in: scales, whose values are checked where they are taken, and a task's.
INNER = ("scale", "model.task", "control.load")


@pytest.mark.slow
@pytest.mark.parametrize(("script", "others"), CHOICES, ids="".join)
def test_nonsense_is_refused(script: str, others: tuple[str, ...], places: Places) -> None:
    named = {other.partition("=")[0] for other in others}
    base = [argument for argument in BASE[script] if argument.partition("=")[0] not in named]
    lines = [[*base, *others], [*base, *others, "checkpoint={generator}"]]  # benchmarks of responses want that one
    arguments = next((line for line in map(places.fill, lines) if refusal(script, line) is None), None)
    if arguments is None:
        pytest.skip("refused as it is: a package, an account or a model is missing")
    cfg = command_line(script, arguments).compose()
    values = [key for key in all_keys(cfg) if not OmegaConf.is_dict(OmegaConf.select(cfg, key))]
    wrong = [f"{key}={value}" for key in values if not key.startswith(INNER) for value in NONSENSE]
    assert [line for line in wrong if refusal(script, [*arguments, line]) is None] == []
