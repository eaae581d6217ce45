"""HaluEval (Li et al. 2023): answers, replies and summaries, each right and hallucinated, and ChatGPT's responses.

Official files: https://github.com/RUCAIBox/HaluEval, folder `data`, JSON lines: qa_data.json {knowledge, question,
right_answer, hallucinated_answer}, dialogue_data.json {knowledge, dialogue_history, right_response,
hallucinated_response}, summarization_data.json {document, right_summary, hallucinated_summary} and general_data.json
{ID, user_query, chatgpt_response, hallucination, hallucination_spans}. There are no splits. Hallucinated answers are
longer than right ones, so a detector means little without comparison to the length baseline.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar, NamedTuple

from data_modules.reading import (
    ANY,
    SEEKER,
    YES_NO,
    File,
    Names,
    Patterns,
    ReadReport,
    Row,
    Source,
    chosen,
    find_files,
    log_missing,
    text_group,
)
from data_modules.reading.dialogues import read_transcript
from faithkit.records import FAITHFUL, HALLUCINATED, UNTYPED, Example, Span, Turn
from faithkit.settings.check import check_value
from faithkit.settings.types import Whole

ADDRESS = "https://github.com/RUCAIBox/HaluEval, folder data"


class Pair(NamedTuple):
    """The fields of a file with two responses per row."""

    knowledge: str
    asked: str  # by the seeker, or the whole dialogue; empty if there is no question
    right: str
    hallucinated: str


PAIRS = {
    "qa": Pair("knowledge", "question", "right_answer", "hallucinated_answer"),
    "dialogue": Pair("knowledge", "dialogue_history", "right_response", "hallucinated_response"),
    "summarization": Pair("document", "", "right_summary", "hallucinated_summary"),
}
GENERAL = "general"
TASKS = (*PAIRS, GENERAL)
FILES = {"all": [f"{task}_data.json" for task in TASKS]}
LAYOUTS = {task: tuple(name for name in pair if name) for task, pair in PAIRS.items()} | {
    GENERAL: ("user_query", "chatgpt_response", "hallucination")
}
BOTH, ONE = "both", "one"
RIGHT = "right"  # suffix of an id, like "hallucinated"


@dataclass(frozen=True, kw_only=True)
class HaluEval(Source):
    """Responses to questions, dialogues, documents and queries. The group is the knowledge, or the query without one.

    A row with two responses gives two examples, `qa_data:7:right` and `qa_data:7:hallucinated`, so that the ids do not
    depend on the options. A general row has spans where each of those that it names is found in the response.

    Args:
        path: A file, or the folder with all of them.
        tasks: qa, dialogue, summarization, general: one, a list, or `all`.
        pairs: `both` responses of a row, or `one` that a coin chooses.
        seed: Of the coin, which is thrown for each row by itself.
        knowledge: False leaves out the knowledge of questions and dialogues; a summary keeps its document.
        official: As the official run has it, whatever the other options say: one response of each row, no knowledge for
            questions and dialogues, no general rows. The official coin has no seed.
    """

    name: ClassVar[str] = "halueval"
    embedded_layout: ClassVar[str | None] = "halueval"
    official_files: ClassVar[Sequence[Patterns]] = (FILES,)
    address: ClassVar[str] = ADDRESS
    option_values: ClassVar[Mapping[str, Sequence[str | bool]]] = {
        "pairs": (BOTH, ONE),
        "knowledge": (True, False),
        "official": (True, False),
    }
    option_names: ClassVar[Mapping[str, Sequence[str]]] = {"tasks": TASKS}
    options_for_all_rows: ClassVar[Mapping[str, object]] = {"tasks": ANY, "pairs": BOTH, "official": False}
    tasks: Names = ANY
    pairs: str = BOTH
    seed: int = 0
    knowledge: bool = True
    official: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_value("seed", self.seed, Whole)

    def files(self) -> Mapping[str, Sequence[File]]:
        found = find_files(self.path, FILES, address=ADDRESS)
        log_missing(self.path, tuple(FILES["all"]), tuple(found["all"]), ADDRESS)
        return found

    def examples(self, row: Row, split: str, report: ReadReport) -> Iterator[Example]:
        task = row.layout(LAYOUTS)
        if not chosen(self.tasks) & {ANY, task}:
            report.count(f"dropped: {task}")
        elif task != GENERAL:
            fields = PAIRS[task]
            knowledge = row.text(fields.knowledge)
            asked: tuple[Turn, ...] = ()
            if task == "dialogue":
                asked = read_transcript(row, fields.asked)
            elif fields.asked:
                asked = (Turn(speaker=SEEKER, text=row.text(fields.asked)),)
            texts = {RIGHT: row.text(fields.right), HALLUCINATED: row.text(fields.hallucinated)}
            if texts[RIGHT] == texts[HALLUCINATED]:
                report.count("pairs of equal responses")
            hidden = task != "summarization" and (self.official or not self.knowledge)
            chosen_ones: tuple[str, ...] = (RIGHT, HALLUCINATED)
            if self.pairs == ONE or self.official:  # the same one of a row whatever else is read
                coin = Random(f"{self.seed}:{row.default_id}").random()
                chosen_ones = (HALLUCINATED,) if coin > 0.5 else (RIGHT,)
            for which in chosen_ones:
                yield Example(
                    id=f"{row.default_id}:{which}",
                    source=self.name,
                    split=split,
                    group=text_group(knowledge),
                    knowledge="" if hidden else knowledge,
                    history=asked,
                    response=texts[which],
                    reference=texts[RIGHT],
                    label=FAITHFUL if which == RIGHT else HALLUCINATED,
                    meta={"task": task, "pair": row.default_id},
                )
        elif self.official:
            report.count("dropped: general, which the official run does not judge")
        else:
            query, response = row.text("user_query"), row.text("chatgpt_response")
            label = row.choice("hallucination", YES_NO)
            yield Example(
                id=row.default_id,  # some rows of the general file have no ID
                source=self.name,
                split=split,
                group=text_group(query),
                knowledge="",
                history=(Turn(speaker=SEEKER, text=query),),
                response=response,
                label=label,
                spans=_find_spans(row, response, label, report),
                meta={"task": GENERAL},
            )


def _find_spans(row: Row, response: str, label: str, report: ReadReport) -> tuple[Span, ...] | None:
    """Returns the places of the texts that the annotators named; None if these are not all there is to find.

    They are texts and not offsets: some were retyped, and some are remarks ("Incomplete answer").
    """
    if row.values.get("hallucination_spans") is None:
        return None
    texts = [text for text in row.texts("hallucination_spans") if text.strip()]
    if label == HALLUCINATED and not texts:
        report.count("spans: none named in a hallucinated response")
        return None
    if label == FAITHFUL:
        if texts:
            report.count("spans: named in a response that is right, left out", len(texts))
        return ()
    unlocated = sum(text not in response for text in texts)
    report.count("spans: located", len(texts) - unlocated)
    if repeated := sum(response.count(text) > 1 for text in texts):
        report.count("spans: of several places, the first taken", repeated)
    if unlocated:
        report.count("spans: not in the response", unlocated)
        return None
    starts = sorted((response.index(text), response.index(text) + len(text)) for text in texts)
    return tuple(Span(start=start, end=end, label=UNTYPED) for start, end in starts)
