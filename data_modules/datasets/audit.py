"""FaithDial's data audit (Dziri et al. 2022, "On the Origin of Hallucinations"): gold and model responses, judged.

Official files: https://github.com/McGill-NLP/FaithDial, folder `data-audit`: `gold` with evidence, history, response,
BEGIN, VRM; `CTRL`, `DoHA`, `GPT2` with knowledge, history, the model's response under its name, begin_label, vrm_label.
One response may have several labels. Some rows are blank, and a few have no label or no knowledge: all are dropped
and counted.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from data_modules.datasets.begin import GENERIC, BeginSource, cut_knowledge, settle_generic
from data_modules.reading import BadRow, File, ReadReport, Row, find_files, last_turn, log_missing, text_group
from faithkit.errors import shorten
from faithkit.records import FAITHFUL, HALLUCINATED, Example

ADDRESS = "https://github.com/McGill-NLP/FaithDial, folder data-audit"
PATTERNS = {
    "gold": "{}.csv",
    "CTRL": "ctrl_processed_{}.csv",
    "DoHA": "doha_processed_{}.csv",
    "GPT2": "gpt2_processed_{}.csv",
}
FOLDERS = tuple(PATTERNS)
CORPORA = ("wow", "cmu", "topical")  # what the responses answer to; the files' names end with it, or with
OTHER_NAMES = {"topicalchat": "topical"}
LAYOUTS = {"gold": ("evidence", "history", "response", "BEGIN", "VRM")} | {
    model: ("knowledge", "history", model, "begin_label", "vrm_label") for model in ("ctrl", "doha", "gpt2")
}
# As the files spell them (case aside), to the label that is meant.
TAGS = {
    "entailment": "entailment",
    "entailmentt": "entailment",
    "hallucination": "hallucination",
    "hallucinated": "hallucination",
    "partial hallucination": "partial hallucination",
    "generic": "generic",
    "uncooperative": "uncooperative",
}


@dataclass(frozen=True, kw_only=True)
class Audit(BeginSource):
    """Gold and model responses with BEGIN labels; speech acts (VRM) are in `meta`.

    Any hallucination makes a response hallucinated; entailment, uncooperative or not, makes it faithful (the gold files
    write Uncooperative alone for entailed but uncooperative). The group is the knowledge.

    Args:
        path: Folder `data-audit`, one of its folders, or one file.
        responses: Folder to read: gold, CTRL, DoHA, GPT2, or all.
        corpora: Corpus to read: wow, cmu, topical, or all.
    """

    name: ClassVar[str] = "audit"
    embedded_layout: ClassVar[str | None] = "audit"
    option_values: ClassVar[Mapping[str, Sequence[str | bool]]] = {
        **BeginSource.option_values,
        "corpora": ("all", *CORPORA),
        "responses": ("all", *FOLDERS),
    }
    responses: str = "all"
    corpora: str = "all"

    def files(self) -> Mapping[str, Sequence[File]]:
        folders = FOLDERS if self.responses == "all" else (self.responses,)
        chosen = CORPORA if self.corpora == "all" else (self.corpora,)
        corpora = [f"{corpus}*" if corpus in OTHER_NAMES.values() else corpus for corpus in chosen]
        names = [(folder, PATTERNS[folder].format(corpus)) for folder in folders for corpus in corpora]
        above, inside = [f"{folder}/{name}" for folder, name in names], [name for _, name in names]
        found = find_files(self.path, {"all": above}, {"all": inside}, address=ADDRESS)
        if self.responses == self.corpora == "all" and len({file.parent for file in found["all"]}) > 1:
            log_missing(self.path, tuple(above), tuple(found["all"]), ADDRESS)
        return found

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        model = row.layout(LAYOUTS)
        knowledge_name, _, response_name, begin_name, vrm_name = LAYOUTS[model]
        filled = {name for name in LAYOUTS[model] if row.text(name, empty_ok=True).strip()}
        needed = {"no label": begin_name, "empty response": response_name, "no knowledge": knowledge_name}
        if missing := next((name for name, field in needed.items() if field not in filled), None):
            report.count(f"dropped: {missing if filled else 'blank row'}")
            return
        parts = _parts(row.text(begin_name), ",.")  # "entailment. uncooperative" means a comma
        unknown = [part for part in parts if part.lower() not in TAGS]
        if unknown or not parts:
            raise BadRow(f"field {begin_name!r} is {shorten(row.values[begin_name])}; known: {', '.join(TAGS)}")
        if "." in row.text(begin_name) or any(part.lower() != TAGS[part.lower()] for part in parts):
            report.count("misspelt labels, read by the table")
        tags = tuple(TAGS[part.lower()] for part in parts)
        response = row.text(response_name, empty_ok=True)
        hallucinated = any("hallucination" in tag for tag in tags)
        judged = HALLUCINATED if hallucinated else GENERIC if GENERIC in tags else FAITHFUL
        label = settle_generic(judged, self.generic, report)
        if label is None:
            return
        knowledge = row.text(knowledge_name)
        shown, cut = cut_knowledge(knowledge, response, self.max_knowledge_words, report)
        name = Path(row.file).stem.rpartition("_")[2]
        corpus = OTHER_NAMES.get(name, name)
        yield Example(
            id=row.default_id,
            source=self.name,
            split=split,
            group=text_group(knowledge),
            knowledge=shown,
            history=last_turn(row, "history"),
            response=response,
            label=label,
            tags=tags,
            meta={
                "model": model,
                **({"corpus": corpus} if corpus in CORPORA else {}),
                "vrm": _parts(row.text(vrm_name, empty_ok=True), ","),
                **cut,
            },
        )


def _parts(text: str, separators: str) -> list[str]:
    return [part for part in (" ".join(piece.split()) for piece in re.split(f"[{separators}]", text)) if part]
