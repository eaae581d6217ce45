"""BEGIN (Dziri et al. 2022): model responses judged for whether the knowledge supports them.

Official files: https://github.com/google/BEGIN-dataset. The release of 2022 (wow, cmu-dog, topicalchat) labels Fully
attributable, Not fully attributable, Generic; the release of 2021 (dev_05_24_21.tsv, test_05_24_21.tsv) entailment,
hallucination, off-topic, contradiction, generic. The header distinguishes them; the report counts which it was.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from data_modules.reading import File, Patterns, ReadReport, Row, Source, find_files, last_turn, log_missing, text_group
from faithkit.records import FAITHFUL, HALLUCINATED, WHOLE_KNOWLEDGE, Example
from faithkit.settings.check import check_value
from faithkit.settings.types import Count
from faithkit.words import best_sentences

ADDRESS = "https://github.com/google/BEGIN-dataset"
FILES_2022 = {
    "validation": [f"**/begin_dev_{domain}.tsv" for domain in ("wow", "cmu", "tc")],
    "test": [f"**/begin_test_{domain}.tsv" for domain in ("wow", "cmu", "tc")],
}
LAYOUTS = {
    "2022": ("model_name", "data_source", "knowledge", "message", "response", "begin_label"),
    "2021": ("evidence", "previous turn", "response", "gold label"),
}
META = ("model_name", "data_source", "full label set")
GENERIC = "generic"
LABELS_2022 = {"fully attributable": FAITHFUL, "not fully attributable": HALLUCINATED, "generic": GENERIC}
LABELS_2021 = {
    "entailment": FAITHFUL,
    "hallucination": HALLUCINATED,
    "contradiction": HALLUCINATED,
    "off-topic": HALLUCINATED,
    "off_topic": HALLUCINATED,
    "generic": GENERIC,
}


def settle_generic(label: str, generic: str, report: ReadReport) -> str | None:
    """Returns the label of a response, where `generic` decides about generic ones: None drops it; both are counted."""
    if label != GENERIC:
        return label
    if generic == "drop":
        report.count("dropped: generic")
        return None
    report.count(f"generic, taken as {generic}")
    return generic


def cut_knowledge(
    knowledge: str, response: str, max_words: int | None, report: ReadReport
) -> tuple[str, dict[str, str]]:
    """Cuts knowledge to about `max_words`; where it was cut, that is counted, and the whole is returned for `meta`."""
    shown = knowledge if max_words is None else best_sentences(knowledge, response, max_words)
    if shown == knowledge:
        return knowledge, {}
    report.count("cut: knowledge, to the sentences nearest to the response")
    return shown, {WHOLE_KNOWLEDGE: knowledge}


@dataclass(frozen=True, kw_only=True)
class BeginSource(Source):
    """A dataset with BEGIN's labels.

    Args:
        generic: What becomes of generic responses: drop, hallucinated or faithful.
        max_knowledge_words: Longer knowledge is cut to the sentences that share most with the response; None leaves it
            whole.
    """

    option_values: ClassVar[Mapping[str, Sequence[str | bool]]] = {"generic": ("drop", HALLUCINATED, FAITHFUL)}
    options_for_all_rows: ClassVar[Mapping[str, Any]] = {"generic": HALLUCINATED}
    generic: str = "drop"
    max_knowledge_words: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_value("max_knowledge_words", self.max_knowledge_words, Count | None)


@dataclass(frozen=True, kw_only=True)
class Begin(BeginSource):
    """Responses of GPT-2, T5, CTRL and DoHA with the message that they answer.

    The group is the knowledge: the responses of several models to one text stay together.

    Args:
        path: A file, or any folder above the files.
    """

    name: ClassVar[str] = "begin"
    embedded_layout: ClassVar[str | None] = "begin"
    official_files: ClassVar[Sequence[Patterns]] = (
        FILES_2022,
        {"validation": ["**/dev_05_24_21.tsv"], "test": ["**/test_05_24_21.tsv"]},
    )
    address: ClassVar[str] = ADDRESS

    def files(self) -> Mapping[str, Sequence[File]]:
        found = find_files(self.path, *self.official_files, address=ADDRESS)
        for split, names in FILES_2022.items():  # the release of 2021 has one file for each split
            files = found.get(split, ())
            if any(file.match(name) for file in files for name in names):
                log_missing(self.path, tuple(name.removeprefix("**/") for name in names), tuple(files), ADDRESS)
        return found

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        layout = row.layout(LAYOUTS)
        report.count(f"layout: BEGIN {layout}")
        if layout == "2022":
            knowledge, message, tag, labels = "knowledge", "message", "begin_label", LABELS_2022
        else:
            knowledge, message, tag, labels = "evidence", "previous turn", "gold label", LABELS_2021
        label = settle_generic(row.choice(tag, labels), self.generic, report)
        if label is None:
            return
        whole, response = row.text(knowledge), row.text("response")
        shown, cut = cut_knowledge(whole, response, self.max_knowledge_words, report)
        yield Example(
            id=row.default_id,
            source=self.name,
            split=split,
            group=text_group(whole),
            knowledge=shown,
            history=last_turn(row, message),
            response=response,
            label=label,
            tags=(row.text(tag),),
            meta={name: row.values[name] for name in META if name in row.values} | cut,
        )
