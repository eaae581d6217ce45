"""The records of an invented dialogue: a turn with its replies, and a reply with its annotations."""

from dataclasses import dataclass

from data_modules.embedded.hallucinate import judgement
from data_modules.embedded.phrasing import Mark
from faithkit.records import Turn


@dataclass(slots=True)
class Reply:
    """A reply with its annotations."""

    text: str
    kind: str  # a key of hallucinate.RATES, or faithful, uncooperative, generic
    severity: str  # evident, subtle, or none
    marks: list[Mark]  # its unsupported parts
    tags: tuple[str, ...]
    vrm: list[str]  # verbal response modes, as BEGIN annotates them
    truth: str  # what the knowledge states in place of the unsupported parts

    @property
    def target(self) -> str:
        """The judgement that this reply deserves."""
        return judgement(self.kind, [self.text[start:end] for start, end, _ in self.marks], self.truth)


@dataclass(slots=True)
class Exchange:
    """One turn: the knowledge, the history, a faithful reply and its hallucinated partner."""

    domain: str
    topic: str
    sentences: list[str]
    history: tuple[Turn, ...]
    faithful: Reply
    hallucinated: Reply
    generic_text: str
    true_clause: str  # states the main fact
    wrong_clause: str  # the hallucinated reply's version of it; equal where that only adds a remark
    hallucinated_first: bool  # the order of the two; layouts with one reply a turn show the first
    is_edited: bool  # the faithful reply was made from the hallucinated one, as FaithDial's are

    @property
    def generic(self) -> Reply:
        """The reply that says nothing."""
        return Reply(self.generic_text, "generic", "none", [], ("Generic",), ["Acknowledgment"], "")

    def shown_reply(self, *, generic: bool) -> Reply:
        """Returns the reply of a layout that has one a turn."""
        if generic:
            return self.generic
        return self.hallucinated if self.hallucinated_first else self.faithful
