"""Published figures for the RAGTruth test set, to stand beside ours.

Everything is in percent. The protocols differ from ours and from each other, so each row says where it comes from. The
paper gives precision, recall and F1 by task (Niu et al. 2024, first version, Tables 5 and 6); later papers cite its
revised overall F1.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from faithkit.errors import shorten
from faithkit.records import Example

TEST_RESPONSES = 2700  # 450 sources, six models
MODELS = {
    "gpt-3.5-turbo-0613",
    "gpt-4-0613",
    "llama-2-7b-chat",
    "llama-2-13b-chat",
    "llama-2-70b-chat",
    "mistral-7b-instruct",
}
TASKS = ("qa", "data2txt", "summary", "")  # "" is overall; the order of the paper's columns
V1 = "v1"
REVISED = "revised"
PROTOCOLS = {
    V1: "RAGTruth (Niu et al. 2024), first version; spans by overlap in characters",
    REVISED: "RAGTruth as later papers cite it; overall F1 alone is known here",
    "RAG-HAT": "Song et al. 2024; response level only",
    "Luna": "Belyi et al. 2024; response level only",
    "LettuceDetect": "Kovacs & Recski 2025; its scorer sums overlaps of span pairs, which can count characters twice",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One system's figures at one level of one task, in percent; None where they were not given."""

    system: str
    source: str
    level: str
    task: str
    f1: float
    precision: float | None = None
    recall: float | None = None

    def __post_init__(self) -> None:
        if self.level not in ("response", "char") or self.task not in TASKS or self.source not in PROTOCOLS:
            raise ValueError(f"no such level, task or source: {shorten((self.level, self.task, self.source))}")

    @property
    def name(self) -> str:
        """Names the system with the source of its figures."""
        return f"{self.system} ({self.source})" if self.source in (V1, REVISED) else self.system


# Precision, recall, F1 for each of TASKS.
_RESPONSE_V1 = {
    "GPT-3.5-turbo, prompted": (40.0, 1.1, 2.2, 100.0, 0.2, 0.3, 100.0, 1.0, 1.9, 62.5, 0.5, 1.0),
    "GPT-4-turbo, prompted": (31.0, 92.0, 46.4, 76.0, 93.0, 83.6, 46.9, 82.2, 59.7, 54.8, 90.5, 68.3),
    "SelfCheckGPT, GPT-3.5": (24.3, 20.1, 22.0, 71.2, 33.2, 45.2, 43.2, 19.7, 27.1, 52.8, 28.0, 36.6),
    "SelfCheckGPT, GPT-4": (26.3, 66.1, 37.6, 70.7, 89.1, 78.9, 33.3, 55.3, 41.6, 49.5, 77.7, 60.5),
    "LMvLM, GPT-4-turbo": (19.9, 75.3, 31.5, 68.8, 76.4, 72.4, 23.8, 82.2, 36.9, 37.0, 77.4, 50.1),
    "Llama-2-13B, fine-tuned": (82.9, 58.6, 68.7, 91.8, 88.1, 89.9, 79.4, 48.1, 59.9, 88.6, 74.1, 80.7),
}
_CHAR_V1 = {
    "GPT-3.5-turbo, prompted": (59.5, 1.7, 3.4, 0.0, 0.0, 0.0, 100.0, 1.1, 2.2, 64.5, 0.9, 1.8),
    "GPT-4-turbo, prompted": (24.4, 43.6, 31.3, 20.9, 60.3, 31.0, 36.3, 49.5, 41.9, 24.0, 51.7, 32.7),
    "Llama-2-13B, fine-tuned": (72.3, 46.6, 56.6, 65.3, 51.4, 57.6, 73.5, 31.1, 43.7, 69.1, 45.4, 54.8),
}
# Overall F1 by response, by character.
_OVERALL: dict[tuple[str, str], tuple[float, float | None]] = {
    ("GPT-4-turbo, prompted", REVISED): (63.4, 28.3),
    ("Llama-2-13B, fine-tuned", REVISED): (78.7, 52.7),
    ("Luna", "Luna"): (65.4, None),
    ("RAG-HAT", "RAG-HAT"): (83.9, None),
    ("LettuceDetect base", "LettuceDetect"): (76.07, 55.44),
    ("LettuceDetect large", "LettuceDetect"): (79.22, 58.93),
}


def _all() -> list[Published]:
    rows = []
    for level, systems in (("response", _RESPONSE_V1), ("char", _CHAR_V1)):
        for system, figures in systems.items():
            for place, task in enumerate(TASKS):
                precision, recall, f1 = figures[3 * place : 3 * place + 3]
                row = Published(
                    system=system, source=V1, level=level, task=task, precision=precision, recall=recall, f1=f1
                )
                rows.append(row)
    for (system, source), f1s in _OVERALL.items():
        for level, f1_only in zip(("response", "char"), f1s, strict=True):
            if f1_only is not None:
                rows.append(Published(system=system, source=source, level=level, task="", f1=f1_only))
    return rows


PUBLISHED = tuple(_all())


def published(dataset: str, level: str, task: str = "") -> Sequence[Published]:
    """Selects the figures for one level and task ("" is overall), the best F1 first; none for other datasets."""
    if dataset != "ragtruth":
        return ()
    rows = [row for row in PUBLISHED if (row.level, row.task) == (level, task)]
    return sorted(rows, key=lambda row: -row.f1)


def comparable(examples: Iterable[Example]) -> bool:
    """Tells whether these are responses of the models that the published figures are about."""
    return {str(example.meta.get("model")).lower() for example in examples} <= MODELS
