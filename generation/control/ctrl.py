"""Control tokens as `control=ctrl` sets them up: the features in use, and how each is measured."""

import logging
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from data_modules.encoding.pairs import Columns
from data_modules.encoding.turn_layout import CONTROL_TOKENS
from faithkit.entailment import Entailment
from faithkit.errors import UserError
from faithkit.records import Example
from generation.control.entailment import ENTAILED, entailment_levels, kept_levels, model_digest
from generation.control.features import (
    ENTAILMENTS,
    OVERLAP,
    OVERLAPS,
    RELEASE_ENTAILMENT,
    VOICE,
    lexical_overlap,
    objective_voice,
)
from generation.control.release import release_overlap

VERSION = 2  # raise it when a feature is measured differently

log = logging.getLogger("faithkit")


class Ctrl:
    """Measures the features that control tokens stand for.

    Rashkin et al. 2021, "Increasing Faithfulness in Knowledge-Grounded Dialogue with Controllable Features". In
    training each response's own levels stand in front of its input; when decoding, the levels of a faithful answer do.
    Use it when the data mix faithful and other responses and none shall be lost; with `resample=N` it gave the
    lowest rate of hallucinations of the generators in EXPERIMENTS.md.

        p(y | c_1 ... c_k, knowledge, history)
        voice:       no word of the first person singular in y
        overlap:     |words of y in the knowledge| / |words of y|, by the terciles of the training split
        entailment:  argmax over contradiction, neutral, entailment of (knowledge, y)

    | related | differs in | use it when |
    | --- | --- | --- |
    | `objective=loss_truncation` | leaves the least likely responses out | nothing shall be measured beforehand |
    | `objective=infonce` | contrasts with negatives | there are responses that were not to be given |
    | `best_of=N detector=...` | chooses after decoding | the generator cannot be trained again |

    Example:
        >>> from generation.control.ctrl import Ctrl
        >>> from faithkit.records import Example, Turn
        >>> texts = {"knowledge": "Bread is baked from flour.", "history": (), "response": "I bake bread from flour."}
        >>> example = Example(id="1", source="own", split="test", group="1", **texts)
        >>> ctrl = Ctrl(groups=["voice", "overlap"], entailment=None, load=lambda name: None)
        >>> {name: column.tolist() for name, column in ctrl.measure([example]).items()}
        {'voice': [0], 'overlap': [0.6]}

    On the command line: `faithkit train model=t5 control=ctrl control.entailment=runs/CRITIC`. With
    `control=ctrl_release` overlap and terciles are those of FaithDial's release (`generation.control.release`), and a
    response is entailed or not: contradiction and neutral are one level.

    Args:
        groups: Names of control groups, in the order of `data_modules.encoding.turn_layout.CONTROL_TOKENS`.
        entailment: A critic of ours or an NLI model. None leaves that group out, and logs it.
        load: Loads the model of that name; called when it is first needed.
    """

    def __init__(self, *, groups: Sequence[str], entailment: str | None, load: Callable[[str], Entailment]):
        if unknown := [group for group in groups if group not in CONTROL_TOKENS]:
            hint = f"use some of {', '.join(CONTROL_TOKENS)}, in this order"
            raise UserError(f"unknown control group {unknown[0]!r}", place="control.groups", hint=hint)
        if entailment is None and any(group in ENTAILMENTS for group in groups):
            log.info("control: no entailment group, for control.entailment names no critic and no NLI model")
            groups = [group for group in groups if group not in ENTAILMENTS]
        if not groups:
            hint = "name some in control.groups; entailment needs control.entailment=PATH"
            raise UserError("control without any group", hint=hint)
        self.groups, self.entailment, self.load = tuple(groups), entailment, load
        self._model: Entailment | None = None

    @cached_property
    def digest(self) -> str:
        """A hash of the entailment model, for the keys of caches."""
        assert self.entailment is not None
        return model_digest(self.entailment)

    def fingerprint(self) -> str:
        """Names all that the measured values depend on beside the examples, for the keys of caches."""
        model = f":{self.digest}" if any(group in ENTAILMENTS for group in self.groups) else ""
        return f"ctrl:{VERSION}:{','.join(self.groups)}{model}"

    def measure(self, examples: Sequence[Example], *, keep: bool = False) -> Columns:
        """Measures all groups of the examples' responses; gives a column of values [examples] a group.

        Args:
            keep: Stores the entailment model's levels for later launches.
        """
        return {group: self._values(group, examples, keep) for group in self.groups}

    def _values(self, group: str, examples: Sequence[Example], keep: bool) -> np.ndarray:
        if group == VOICE:
            return np.array([objective_voice(example.response) for example in examples], np.int8)
        if group in OVERLAPS:
            overlap = lexical_overlap if group == OVERLAP else release_overlap
            return np.array([overlap(e.knowledge, e.response) for e in examples], np.float64)
        found = self._kept(examples) if keep else entailment_levels(examples, self._loaded())
        return (found == ENTAILED).astype(np.int8) if group == RELEASE_ENTAILMENT else found

    def _kept(self, examples: Sequence[Example]) -> np.ndarray:
        def ask() -> np.ndarray:
            log.info("asking %s about %s responses (kept for later launches)", self.entailment, f"{len(examples):,}")
            return entailment_levels(examples, self._loaded())

        return kept_levels(examples, self.digest, ask)

    def _loaded(self) -> Entailment:
        if self._model is None:
            assert self.entailment is not None
            self._model = self.load(self.entailment)
        return self._model

    def release(self) -> None:
        """Frees the entailment model; it is loaded again when it is needed again."""
        self._model = None
