"""Measures how many seeker turns FaithDial's people edited, by the dialogues of Wizard of Wikipedia that they edited.

FaithDial's files keep the wizard's text before an edit, but not the seeker's. A dialogue is found by the wizard's
original texts, more than half of which must be in one dialogue of Wizard of Wikipedia; the seeker's turn before each of
them is compared, apart from white space.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable

from data_modules.reading.fields import text_group
from faithkit.records import Example
from faithkit.statistics.bootstrap import Groups, bootstrap, mean_statistic
from faithkit.statistics.metric import PROPORTION, Metric

Dialogue = tuple[str, str]  # split and group: official files number the dialogues of each split from 0


def find_seeker_edits(edited: Iterable[Example], originals: Iterable[Example]) -> list[tuple[Dialogue, bool]]:
    """Lists the turns that are in both corpora: the dialogue, and whether the seeker's text differs."""
    seekers: dict[str, dict[Dialogue, set[str]]] = defaultdict(lambda: defaultdict(set))  # by the wizard's text
    for one in originals:
        if one.history:
            seekers[text_group(one.response)][one.split, one.group].add(_last_turn(one))
    dialogues: dict[Dialogue, list[tuple[str, str]]] = defaultdict(list)
    for one in edited:
        if one.history:
            dialogues[one.split, one.group].append((text_group(one.original or one.response), _last_turn(one)))
    found = []
    for dialogue, turns in dialogues.items():
        counts = Counter(place for wizard, _ in turns for place in seekers.get(wizard, ()))
        [(source, shared)] = counts.most_common(1) or [(dialogue, 0)]
        if 2 * shared > len(turns):
            known = ((seekers.get(wizard, {}).get(source), seeker) for wizard, seeker in turns)
            found += [(dialogue, seeker not in before) for before, seeker in known if before]
    return found


def measure_seeker_edits(turns: Iterable[tuple[Dialogue, bool]], num_resamples: int) -> dict[str, Metric]:
    """Computes `seeker_edited`, the share of edited seeker turns with its interval over dialogues; empty if none."""
    if not (rows := list(turns)):
        return {}
    groups = Groups.of("/".join(dialogue) for dialogue, _ in rows)
    statistic = mean_statistic(groups, {"seeker_edited": [float(edited) for _, edited in rows]})
    return bootstrap(groups, statistic, kinds=PROPORTION, num_resamples=num_resamples).metrics


def _last_turn(example: Example) -> str:
    return " ".join(example.history[-1].text.split())
