"""The labels of the papers' schemes with their definitions in our words, the most severe one first."""

from construction.ragtruth import GOOD, REFUSED, TRUNCATED
from data_modules.datasets.ragtruth import LABELS as RAGTRUTH_SPELLINGS

RAGTRUTH_LABELS = {  # evident ones are the severe ones to the paper
    "Evident Conflict": "Says the opposite of the source, plain to see: a wrong name, number or fact.",
    "Evident Baseless Info": "Adds a fact or a detail that the source does not have.",
    "Subtle Conflict": "Departs from the source in meaning: another word changes what is implied, or how strongly.",
    "Subtle Baseless Info": "Adds what was inferred or felt: an insight, a mood, a common assumption.",
}
BEGIN_LABELS = {
    "Hallucination": "Nothing of what is said stands in the knowledge.",
    "Partial Hallucination": "Some of it stands in the knowledge, some does not.",
    "Uncooperative": "True to the knowledge, but it does not answer or help the other speaker.",
    "Generic": "Says nothing that the knowledge could support or not: That's nice.",
    "Entailment": "All of it follows from the knowledge.",
}
VRM_LABELS = {  # verbal response modes (Stiles 1992)
    "Disclosure": "Tells thoughts, feelings or experiences of the speaker's own.",
    "Edification": "States objective information.",
    "Advisement": "Advises, suggests or guides.",
    "Confirmation": "Compares the speaker's view with the other's: agrees or disagrees.",
    "Question": "Asks for information or guidance.",
    "Acknowledgment": "Shows that something was heard: Oh. I see. Hello.",
    "Interpretation": "Explains or judges the other speaker.",
    "Reflection": "Puts into words what the other speaker said or felt.",
}
DIAHALU_LABELS = {
    "non-factual": "Not in line with facts, or something that does not exist.",
    "incoherence": "Contradicts what was said before, the other speaker, or itself; or makes no sense here.",
    "irrelevance": "Does not belong to the topic, or misunderstands the question.",
    "overreliance": "Trusts a wrong premise, or answers what cannot be answered.",
    "reasoning error": "Any error within a reasoning dialogue.",
}
QUALITIES = {
    TRUNCATED: "The response breaks off.",
    REFUSED: "It refuses, though the source has the answer.",
    GOOD: "Neither of them.",
}
SPAN_TYPES = {label: RAGTRUTH_SPELLINGS[label.lower()] for label in RAGTRUTH_LABELS}  # as predictions name them
