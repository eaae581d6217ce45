"""Damages valid command lines: a value, a key, a character, an argument; each is accepted or refused, and quickly."""

import random
import time
from functools import cache
from pathlib import Path

from faithkit.errors import UserError
from tests.faults.campaign import Campaign, Wrong
from tests.faults.command_lines import BASE, RIGHT
from tests.faults.command_places import Places, command_line, refusal
from tests.faults.mutations import ODD_VALUES
from tests.running import temporary_folder

MOST_SECONDS = 3.0  # of this process; processors that are shared do less in a second
ODD_TEXTS = (
    *("null", "true", "-1", "0", "1e99", "nan", "inf", "-inf", "[]", "{}", "[[1]]", "{a:{b:[c]}}", "''", "' '", "???"),
    *("${seed}", "${nope}", "${oc.env:HOME}", "a,b", "range(1,9)", "99999999999999999999", "é", "\u202e", "\\", "a b"),
    *("!!python/object:os.system", "~", "*", "&a", "0x10", "1_0", "2020-01-01", "x" * 5000, "../..", "/", "."),
)
ODD_CHARACTERS = "=,[]{}()'\"\\$:+~@ \t\n\x00é\ud800-./0aZ"


@cache
def _places() -> Places:
    return Places.make(temporary_folder("faithkit-places-"))


def attempt(rng: random.Random, folder: Path) -> None:
    """Changes a valid command line in one place, and checks it as the script does before its work."""
    script, arguments = rng.choice([line for line in RIGHT if "--cfg" not in line[1] and "-m" not in line[1]])
    lines = _places().fill((*BASE[script], *arguments))
    changed = _changed(lines, script, rng)
    start = time.process_time()
    try:
        if (message := refusal(script, changed)) is not None:
            raise UserError(message)
    finally:
        taken = time.process_time() - start
        if taken > MOST_SECONDS:
            raise Wrong(f"{taken:.1f} seconds for {changed}")


def _changed(lines: list[str], script: str, rng: random.Random) -> list[str]:
    lines = lines or ["seed=1"]
    place = rng.randrange(len(lines))
    key, _, value = lines[place].partition("=")
    match rng.randrange(8):
        case 0:
            lines[place] = f"{key}={rng.choice(ODD_TEXTS)}"
        case 1:
            lines[place] = f"{key}={rng.choice(ODD_VALUES)!s}"
        case 2:
            lines[place] = f"{_damaged(key, rng)}={value}"
        case 3:
            lines[place] = _damaged(lines[place], rng)
        case 4:
            lines[place] = rng.choice(("+", "++", "~", "-", "--", "@")) + lines[place]
        case 5:
            lines.append(rng.choice(lines))
        case 6:
            lines.append(f"{rng.choice(_keys(script))}={rng.choice(ODD_TEXTS)}")
        case _:
            del lines[place]
    return lines


def _damaged(text: str, rng: random.Random) -> str:
    place = rng.randrange(len(text) + 1)
    return text[:place] + rng.choice(("", rng.choice(ODD_CHARACTERS))) + text[place + rng.randrange(2) :]


@cache
def _keys(script: str) -> list[str]:
    from faithkit.settings.overrides import all_keys

    return sorted(all_keys(command_line(script, ()).compose()))


CAMPAIGNS = [Campaign("command line", attempt)]
