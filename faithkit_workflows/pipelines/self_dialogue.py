"""DiaHalu's self-dialogues (Chen et al. 2024, section 4.2): two language models talk, and people edit the user's turns.

A, the user's side, is `engine.model`; B, the assistant under test, is each of `models`, or the same model. Each turn is
a step: A1 is generated once, and each B continues from it in a branch. When people edit turns of A
(`turns_to_edit.csv`), a separate chain under `edits/NN` continues the edited dialogues from there; earlier chains do
not change. Then a detector may judge the dialogues, in a chain under `verdicts/` that reads the current ones: edited
dialogues are judged again. The output has its verdicts in fields of their own, next to the empty ones of people.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from construction.ask import EnginePool, ReplyRules, sampling
from construction.chain import Chain, sign
from construction.labels import normalize_spaces, read_sheet, write_sheet
from construction.official_layouts import DIAHALU_FILE, VERDICT, dialogue_text, write_diahalu
from construction.steps import AT, FAILURE, KEY, Row, Step, is_failed, usable_rows
from construction.topics import Topics
from construction.turns import AskTurn, DialogueRules, side_of, turn_name
from data_modules.datasets.diahalu import DOMAINS
from data_modules.reading.fields import ANY
from faithkit.errors import UserError, shorten
from faithkit.files.jsonl import read_jsonl, write_jsonl
from faithkit.files.run_folder import RunFolder
from faithkit.inference.prompts import FIELD, TextPrompt, read_text, read_text_prompt
from faithkit.inference.text_engines import EngineOptions
from faithkit.records import Prediction
from faithkit_workflows.pipelines.run_chain import (
    OUTPUT,
    Detect,
    build_model,
    print_counts,
    require_verdict,
    run_chain,
    writers_of,
)

TOPICS = "topics"
VERDICTS, DIALOGUES, JUDGE = "verdicts", "dialogues", "judge"
SHEET, EDITS, EDITS_FILE = "turns_to_edit.csv", "edits", "edits.jsonl"
COLUMNS = ("dialogue", "round", "domain", "before", "text", "signs", "edit")
FAILED = "the dialogue failed behind it"
FIELDS = ("topic", "max_words")  # that a prompt may contain
log = logging.getLogger("faithkit")


def run_self_dialogue(run: RunFolder, config: Mapping[str, Any]) -> None:
    """Generates the dialogues, applies people's edits, and writes DiaHalu's layout and the turns to edit."""
    plan = DialoguePlan(config)
    chain = run_chain(run, config, plan.steps())
    if chain is None:
        return
    edited = EditedDialogues(run, config, plan, chain)
    for number in edited.numbers():
        edited.regenerate(number)
    sheet = run.path / SHEET
    if sheet.exists() and (stored := edited.store(sheet)):
        edited.regenerate(stored)
    block, rows = config["pipeline"], edited.rows
    if block["detector"]:
        rows = judge_dialogues(run, config, edited.rows)
    num_written = write_diahalu(run.path / OUTPUT / DIAHALU_FILE, rows())

    def lines() -> Iterator[dict[str, object]]:
        """Makes a line of the table for each turn of A."""
        for row in edited.editable_rows():
            if row.get("domain") not in block["edit_domains"]:
                continue
            turns: list[str] = row["turns"]
            failed = [f"{FAILED}: {row['failed']}"] if "failed" in row else []
            for place in range(0, len(turns), 2):
                found = ["further turns were cut off"] if turn_name(place) in row.get("cut", ()) else []
                yield {
                    "dialogue": row[KEY],
                    "round": place // 2 + 1,
                    "domain": row["domain"],
                    "before": turns[place - 1] if place else row["for_a"],
                    "text": turns[place],
                    "signs": ", ".join([*found, *failed] if place == len(turns) - 1 else found),
                }

    num_turns = write_sheet(sheet, COLUMNS, lines())
    chain.manifest.result = summarize_dialogues(rows(), num_written, block["rounds"])
    chain.manifest.write()
    log.info("written: %s; %s turns of A to review: %s", run.path / OUTPUT / DIAHALU_FILE, f"{num_turns:,}", sheet)


class DialoguePlan:
    """The steps of a configuration: those of whole dialogues, and those that continue existing turns."""

    def __init__(self, config: Mapping[str, Any]):
        self.config, self.block, self.build = config, config["pipeline"], EnginePool(build_model)
        chosen = DOMAINS if self.block["domains"] == ANY else self.block["domains"]
        self.domains = [domain for domain in DOMAINS if domain in chosen]
        self.user, self.writers = EngineOptions(**config["engine"]), writers_of(config)
        self.next_turn = read_text_prompt("construction", "self_next", "history", "name", folder=config["prompts"])
        self.prompts: dict[str, dict[str, TextPrompt]] = {"A": {}, "B": {}}
        for side, domain in product("AB", self.domains):
            name = f"self_{side.lower()}_{domain}"

            def build(text: str, system: str, name: str = name) -> TextPrompt:
                found = [field for field in FIELDS if field in FIELD.findall(text)]
                return TextPrompt(f"{system}\n\n{text}".strip(), tuple(found), name=name)

            self.prompts[side][domain] = read_text("construction", name, config["prompts"], build)

    def steps(self) -> list[Step]:
        """Makes the steps of whole dialogues."""
        block, paths = self.block, self.block["topics"]
        topics = Topics(
            paths=[paths] if isinstance(paths, str) else paths,
            domains=self.domains,
            all_needed=block["domains"] != ANY,
            open_with_topic=block["opening"] == "topic",
            limit=self.config["limit"],
            on_bad_row=block["on_bad_row"],
        )
        source = Step(name=TOPICS, read=topics.rows, settings=topics.settings())
        first = next(self.turn_steps(0, "", TOPICS))
        return [source, first, *(step for name in self.writers for step in self.turn_steps(1, name, first.name))]

    def turn_steps(self, place: int, name: str, after: str) -> Iterator[Step]:
        """Yields the steps of the turns from a place on, with one of the models as B."""
        block = self.block
        for number in range(place, 2 * block["rounds"]):
            side, field = side_of(number), f"for_{side_of(number).lower()}"
            rules = DialogueRules(
                by_domain={
                    domain: ReplyRules(
                        max_words=block["max_words"],
                        language=block["language"],
                        instruction=f"{prompt.text}\n{self.next_turn.text}",
                    )
                    for domain, prompt in self.prompts[side].items()
                },
                min_rounds=block["min_rounds"],
                heading=self.next_turn.text.partition("{history}")[0].strip(),
            )

            def values(row: Row, field: str = field) -> dict[str, str]:
                return {"topic": row[field], "max_words": str(block["max_words"])}

            work = AskTurn(
                options=self.user if side == "A" else self.writers[name],
                prompts=self.prompts[side],
                values=values,
                read=rules.add_turn,
                decoding=sampling(block["temperature"], block["max_new_tokens"], self.config["seed"]),
                build=self.build,
                place=number,
                next_turn=self.next_turn,
            )
            settings = {key: block[key] for key in ("max_words", "language", "min_rounds")}
            named = f"{turn_name(number)}-{name}" if number else turn_name(number)
            yield Step(name=named, work=work, after=(after,), branch=name, settings=settings)
            after = named

    def last_step(self, name: str) -> str:
        """Names the step that has the whole dialogues of one of the models."""
        return f"{turn_name(2 * self.block['rounds'] - 1)}-{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A person's text that replaces a turn of A.

    Args:
        dialogue: The key of its row.
        round: From 1.
        before: The turn that it replaces.
    """

    dialogue: str
    round: int
    before: str
    text: str

    @property
    def place(self) -> int:
        """Gives the place of the turn."""
        return 2 * (self.round - 1)

    def cut(self, row: Row) -> Row:
        """Cuts the dialogue behind the edited turn."""
        names = {turn_name(place) for place in range(self.place)}
        marks = {mark: [turn for turn in row.get(mark, ()) if turn in names] for mark in ("cut", "refused", "edited")}
        marks["edited"].append(turn_name(self.place))
        rest = {name: value for name, value in row.items() if name not in ("ended", "failed", *marks)}
        kept = {mark: turns for mark, turns in marks.items() if turns}
        return {**rest, **kept, "turns": [*row["turns"][: self.place], self.text]}


class EditedDialogues:
    """The dialogues of a chain, of which those that people edited are replaced by regenerated ones.

    Args:
        chain: Of the whole dialogues; it has run.
    """

    def __init__(self, run: RunFolder, config: Mapping[str, Any], plan: DialoguePlan, chain: Chain):
        self.run, self.config, self.plan, self.chain = run.stage(EDITS), config, plan, chain
        self.regenerated: dict[str, Row] = {}
        self.cut: dict[str, Row] = {}  # up to the edited turn

    def rows(self) -> Iterator[Row]:
        """Reads the current dialogues, failed ones included; those of one topic follow each other."""
        names = list(self.plan.writers)
        for rows in zip(*(self.chain.rows(self.plan.last_step(name)) for name in names), strict=True):
            for name, row in zip(names, rows, strict=True):
                key = f"{row[KEY]}{AT}{name}"
                yield self.regenerated.get(key) or self._with_model({**row, KEY: key}, name)

    def _with_model(self, row: Row, name: str) -> Row:
        return {**row, "branch": name, "model": self.plan.writers[name].model}

    def editable_rows(self) -> Iterator[Row]:
        """Reads the dialogues for editing; one that failed behind an edit has its turns up to the edit."""
        for row in self.rows():
            if is_failed(row) and row[KEY] in self.cut:
                yield {**self.cut[row[KEY]], "failed": row[FAILURE]["why"]}
            else:
                yield row

    def numbers(self) -> list[str]:
        """Names the stored rounds of edits, the oldest first."""
        return sorted(path.parent.name for path in self.run.path.glob(f"*/{EDITS_FILE}"))

    def store(self, sheet: Path) -> str | None:
        """Stores people's edits of a table as the next round, before they are applied; None if it has none.

        An edit that is empty or equals the turn does not count.

        Raises:
            UserError: A round is not a number, or a turn is edited twice.
        """
        found: dict[tuple[str, int], Edit] = {}
        for place, cells in read_sheet(sheet, ("dialogue", "round", "text", "edit")):
            text, before = normalize_spaces(cells["edit"]), normalize_spaces(cells["text"])
            if text in ("", before):
                continue
            number = cells["round"].strip()
            if not (number.isascii() and number.isdigit() and int(number)):
                problem = f"round is {shorten(cells['round'])}"
                raise UserError(problem, place=place, hint="leave dialogue and round as they were written")
            edit = Edit(dialogue=cells["dialogue"], round=int(number), before=before, text=text)
            if (edit.dialogue, edit.round) in found:
                problem = f"round {edit.round} of {shorten(edit.dialogue)} is edited twice"
                raise UserError(problem, place=place, hint="keep one of the edits")
            found[edit.dialogue, edit.round] = edit
        if not found:
            return None
        name = f"{len(self.numbers()) + 1:02d}"
        write_jsonl(self.run.path / name / EDITS_FILE, map(asdict, found.values()))
        return name

    def regenerate(self, number: str) -> None:
        """Continues the dialogues of a round of edits from their edited turns."""
        stage = self.run.stage(number)
        waiting: dict[str, list[Edit]] = {}
        for row in read_jsonl(stage.path / EDITS_FILE):
            waiting.setdefault(row["dialogue"], []).append(Edit(**row))
        cut: list[Row] = []
        for row in self.editable_rows():  # of several edits of a dialogue the first counts
            edits = sorted(waiting.get(row[KEY], ()), key=lambda edit: edit.round)
            turns = () if is_failed(row) else row["turns"]
            fitting = [
                edit for edit in edits if edit.place < len(turns) and normalize_spaces(turns[edit.place]) == edit.before
            ]
            cut += [edit.cut(row) for edit in fitting[:1]]
        if num_left := sum(map(len, waiting.values())) - len(cut):
            why = "their turns have changed, or are behind another edit"
            log.warning("edits/%s: %d edits are not applied: %s", number, num_left, why)
        steps: list[Step] = []
        writers = dict.fromkeys(row["branch"] for row in cut)
        for name in writers:
            rows = [row for row in cut if row["branch"] == name]
            source = Step(name=f"edited-{name}", read=lambda rows=rows: rows, settings={"rows": rows})  # type: ignore[misc]
            steps += [source, *self.plan.turn_steps(min(len(row["turns"]) for row in rows), name, source.name)]
        if not steps:
            return
        chain = run_chain(stage, self.config, steps)
        assert chain is not None, "a dry run has no edited dialogues"
        self.cut |= {row[KEY]: row for row in cut}
        num_failed = 0
        for name in writers:
            for row in chain.rows(self.plan.last_step(name)):
                self.regenerated[row[KEY]] = self._with_model(row, name)
                num_failed += is_failed(row)
        again = f"; {num_failed} failed: edit them once more, or retry_failed=true" if num_failed else ""
        log.info("edits/%s: %d dialogues regenerated%s", number, len(cut), again)


def judge_dialogues(
    run: RunFolder, config: Mapping[str, Any], rows: Callable[[], Iterator[Row]]
) -> Callable[[], Iterator[Row]]:
    """Judges the dialogues with a detector; returns a reader of the same rows with their verdicts.

    Args:
        rows: Reads the dialogues, failed ones included.
    """
    path = config["pipeline"]["detector"]

    def inputs() -> Iterator[Row]:
        for row in usable_rows(rows()):  # with the fields of an example
            yield {**row, "dialogue": row[KEY], "knowledge": "", "history": [], "text": dialogue_text(row)}

    def read(row: Row, prediction: Prediction) -> Row:
        require_verdict(prediction)
        verdict = {"label": prediction.label, "by": f"detector {path}", "why": prediction.text}
        return {**row, VERDICT: verdict | ({} if prediction.score is None else {"score": prediction.score})}

    digest = sign([[row[KEY], row["text"]] for row in inputs()])
    source = Step(name=DIALOGUES, read=inputs, settings={"dialogues": digest})
    work = Detect(path=path, text="text", read=read, labels=config["labels"])
    chain = run_chain(run.stage(VERDICTS), config, [source, Step(name=JUDGE, work=work, after=(DIALOGUES,))])
    assert chain is not None, "a dry run has no dialogues"

    def with_verdicts() -> Iterator[Row]:
        judged = chain.rows(JUDGE)
        for row in rows():
            found = row if is_failed(row) else next(judged)
            yield {**row, VERDICT: found[VERDICT]} if VERDICT in found else row

    return with_verdicts


def summarize_dialogues(rows: Iterable[Row], num_written: int, num_rounds: int) -> dict[str, Any]:
    """Prints counts of the dialogues, and returns them for the manifest."""
    kinds: Counter[str] = Counter()
    sizes: Counter[int] = Counter()
    words: Counter[str] = Counter()
    for row in rows:
        if is_failed(row):
            kinds[f"left out: {row[FAILURE]['why']}"] += 1
            continue
        kinds[f"domain {row['domain']}"] += 1
        kinds[f"model {row['model']}"] += 1
        sizes[len(row["turns"]) // 2] += 1
        for place, text in enumerate(row["turns"]):
            words[side_of(place)] += len(text.split())
        if "ended" in row:
            kinds[f"ended early: {row['ended']['why']}"] += 1
        kinds["turns cut at a further one"] += len(row.get("cut", ()))
        kinds["turns in which B declines"] += len(row.get("refused", ()))
        kinds["dialogues edited by people"] += "edited" in row
        if VERDICT in row:
            kinds[f"{row[VERDICT]['label']}, as {row[VERDICT]['by']} says"] += 1
    num_turns = max(1, sum(size * number for size, number in sizes.items()))  # of each side
    result = {
        "dialogues": num_written,
        "of all rounds": sizes[num_rounds],
        "rounds, mean": round(num_turns / max(1, num_written), 2),
        "words of a turn of A, mean": round(words["A"] / num_turns, 1),
        "words of a turn of B, mean": round(words["B"] / num_turns, 1),
        **{name: number for name, number in sorted(kinds.items()) if number},
    }
    print_counts("self-dialogues", "", result)
    return result
