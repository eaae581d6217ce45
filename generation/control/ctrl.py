"""What `control=ctrl` chooses: which features there are, and how each is measured."""

import logging
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from data_modules.encoding.pairs import Columns
from data_modules.encoding.turn_layout import CONTROL_TOKENS
from faithkit.entailment import Entailment
from faithkit.errors import UserError
from faithkit.records import Example
from generation.control.entailment import entailment_levels, kept_levels, model_digest, write_levels
from generation.control.features import ENTAILMENT, OVERLAP, VOICE, lexical_overlap, objective_voice

VERSION = 1  # a change of what is measured changes it

log = logging.getLogger("faithkit")


class Ctrl:
    """Measures the features of responses.

    Args:
        groups: Names of control groups, in the order of `data_modules.encoding.turn_layout.CONTROL_TOKENS`.
        entailment: What judges entailment: a critic of ours or an NLI model. None leaves that group out, and says so.
        load: Makes a model of that name; called when it is first asked.
    """

    def __init__(self, *, groups: Sequence[str], entailment: str | None, load: Callable[[str], Entailment]):
        if unknown := [group for group in groups if group not in CONTROL_TOKENS]:
            hint = f"use some of {', '.join(CONTROL_TOKENS)}, in this order"
            raise UserError(f"unknown control group {unknown[0]!r}", place="control.groups", hint=hint)
        if ENTAILMENT in groups and entailment is None:
            log.info("control: no entailment group, for control.entailment names no critic and no NLI model")
            groups = [group for group in groups if group != ENTAILMENT]
        if not groups:
            hint = "name some in control.groups; entailment needs control.entailment=PATH"
            raise UserError("control without any group", hint=hint)
        self.groups, self.entailment, self.load = tuple(groups), entailment, load
        self._model: Entailment | None = None

    @cached_property
    def digest(self) -> str:
        """Names the model in the keys of caches."""
        assert self.entailment is not None
        return model_digest(self.entailment)

    def fingerprint(self) -> str:
        """What the measured values depend on beside the examples."""
        model = f":{self.digest}" if ENTAILMENT in self.groups else ""
        return f"ctrl:{VERSION}:{','.join(self.groups)}{model}"

    def measure(self, examples: Sequence[Example], *, keep: bool = False) -> Columns:
        """The values of all groups [examples], by name, in their order.

        Args:
            keep: What the model of entailment says is kept for later launches.
        """
        return {group: self._values(group, examples, keep) for group in self.groups}

    def _values(self, group: str, examples: Sequence[Example], keep: bool) -> np.ndarray:
        if group == VOICE:
            return np.array([objective_voice(example.response) for example in examples], np.int8)
        if group == OVERLAP:
            return np.array([lexical_overlap(e.knowledge, e.response) for e in examples], np.float64)
        return self._kept(examples) if keep else entailment_levels(examples, self._loaded())

    def _kept(self, examples: Sequence[Example]) -> np.ndarray:
        path = kept_levels(examples, self.digest)
        if not path.exists():
            log.info("asking %s about %s responses (kept for later launches)", self.entailment, f"{len(examples):,}")
            write_levels(path, entailment_levels(examples, self._loaded()))
        return np.load(path)

    def _loaded(self) -> Entailment:
        if self._model is None:
            assert self.entailment is not None
            self._model = self.load(self.entailment)
        return self._model

    def release(self) -> None:
        """Lets the model go: it is loaded again if it is asked again."""
        self._model = None
