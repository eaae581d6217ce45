"""DiaHalu's self-dialogues (Chen et al. 2024, section 4.2): two language models talk, and people mend the user's side.

A, the user's side, is `engine.model`; B, the assistant under test, is each of `models`, or the same model. A step a
turn: A1 is said once, and the branch of each B goes on from it. Where people edited turns of A (`turns_to_edit.csv`),
the edited dialogues are made anew from there on by a chain of their own under `edits/NN`: the chains before it stay as
they are. Then a model may judge the dialogues (faithkit_workflows/pipelines/talk_verdicts.py).
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from construction.chain.ask import Said, sampling
from construction.chain.chain_rows import AT, HOLE, KEY, Row, is_hole
from construction.chain.engine_pool import Build, KeptEngines
from construction.chain.replies import ReplyRules
from construction.chain.runner import AnyStep, Chain, Source
from construction.diahalu import NAME, write_diahalu
from construction.dialogues.topics import Topics
from construction.dialogues.turn_edits import Edit, apply_edits, read_edits, write_turns
from construction.dialogues.turns import AskTurn, TalkRules, side_of, turn_name
from data_modules.datasets.diahalu import DOMAINS
from data_modules.reading.fields import ANY
from faithkit.files.jsonl import read_jsonl, write_jsonl
from faithkit.files.run_folder import RunFolder
from faithkit.inference.prompts import FIELD, TextPrompt, read_text, read_text_prompt
from faithkit.inference.text_engines import build_text_engine
from faithkit_workflows.pipelines.dialogue_summary import tell_talks
from faithkit_workflows.pipelines.models import annotator_of, writers_of
from faithkit_workflows.pipelines.run_chain import ask_step, run_chain
from faithkit_workflows.pipelines.talk_verdicts import is_judged, judge_talks, steps_to_show
from faithkit_workflows.pipelines.written import OUTPUT

TOPICS, EDITED = "topics", "edited"
SHEET, EDITS, LEDGER = "turns_to_edit.csv", "edits", "edits.jsonl"
FIELDS = ("topic", "max_words")  # that a prompt may have
log = logging.getLogger("faithkit")


def run_self_dialogue(run: RunFolder, config: Mapping[str, Any], build: Build = build_text_engine) -> None:
    """Lets the models talk, takes in what people edited, and writes DiaHalu's layout and the turns to edit."""
    plan = Plan(config, KeptEngines(build))
    last = [plan.last(name) for name in plan.writers]
    chain = run_chain(run, config, steps_to_show(config, plan.steps(), plan.build, last))
    if chain is None:
        return
    edited = EditedTalks(run, config, plan, chain)
    for number in edited.numbers():
        edited.make(number)
    sheet = run.path / SHEET
    if sheet.exists() and (edits := read_edits(sheet)):
        edited.make(edited.keep(edits))
    block, rows = config["pipeline"], edited.rows
    if is_judged(block):
        rows = judge_talks(run, config, edited.rows, plan.build)
    written = write_diahalu(run.path / OUTPUT / NAME, rows())
    listed = write_turns(sheet, edited.editable(), block["edit_domains"])
    chain.manifest.result = tell_talks(rows(), written, block["rounds"])
    chain.manifest.write()
    log.info("written: %s; %s turns of A to look at: %s", run.path / OUTPUT / NAME, f"{listed:,}", sheet)


class Plan:
    """The steps of a configuration: those of the whole chain, and those that go on from turns that are there."""

    def __init__(self, config: Mapping[str, Any], build: Build):
        self.config, self.block, self.build = config, config["pipeline"], build
        block = self.block
        chosen = DOMAINS if block["domains"] == ANY else block["domains"]
        self.domains = [domain for domain in DOMAINS if domain in chosen]
        self.a, self.writers = annotator_of(config), writers_of(config)
        self.next_turn = read_text_prompt("construction", "self_next", "history", "name", folder=config["prompts"])
        self.prompts = {side: {domain: self._prompt(side, domain) for domain in self.domains} for side in "AB"}

    def _prompt(self, side: str, domain: str) -> TextPrompt:
        name = f"self_{side.lower()}_{domain}"

        def built(text: str, system: str) -> TextPrompt:
            own = [field for field in FIELDS if field in FIELD.findall(text)]
            return TextPrompt(f"{system}\n\n{text}".strip(), tuple(own), name=name)

        return read_text("construction", name, self.config["prompts"], built)

    def steps(self) -> list[AnyStep]:
        """The whole chain."""
        block, paths = self.block, self.block["topics"]
        topics = Topics(
            paths=[paths] if isinstance(paths, str) else paths,
            domains=self.domains,
            all_needed=block["domains"] != ANY,
            open_with_topic=block["opening"] == "topic",
            limit=self.config["limit"],
            on_bad_row=block["on_bad_row"],
        )
        source = Source(name=TOPICS, read=topics.rows, settings=topics.settings())
        first = self._step(0, "", TOPICS)
        return [source, first, *(step for name in self.writers for step in self.turns(1, name, first.name))]

    def turns(self, place: int, name: str, after: str) -> Iterator[AnyStep]:
        """The turns from a place on, with one of the models as B."""
        for number in range(place, 2 * self.block["rounds"]):
            step = self._step(number, name, after)
            yield step
            after = step.name

    def last(self, name: str) -> str:
        """The step that has the whole dialogues with one of the models."""
        return self._name(2 * self.block["rounds"] - 1, name)

    def _name(self, place: int, name: str) -> str:
        return f"{turn_name(place)}-{name}" if place else turn_name(place)

    def _step(self, place: int, name: str, after: str) -> AnyStep:
        block, side, step = self.block, side_of(place), self._name(place, name)
        prompts = self.prompts[side]
        options = self.a if side == "A" else self.writers[name]
        rules = TalkRules(
            by_domain={
                domain: ReplyRules(
                    max_words=block["max_words"],
                    language=block["language"],
                    instruction=f"{prompt.text}\n{self.next_turn.text}",
                )
                for domain, prompt in prompts.items()
            },
            min_rounds=block["min_rounds"],
            heading=self.next_turn.text.partition("{history}")[0].strip(),
        )
        told = f"for_{side.lower()}"

        def pretend(row: Row) -> Row:
            return {**row, "turns": [*row["turns"], f"(what {side} says)"]}

        def read(row: Row, said: Said) -> Row:
            return rules.add(row, said, step)

        ask = AskTurn(
            step=step,
            options=options,
            prompts=prompts,
            values=lambda row: {"topic": row[told], "max_words": str(block["max_words"])},
            read=read,
            pretend=pretend,
            decoding=sampling(block["temperature"], block["max_new_tokens"], self.config["seed"]),
            build=self.build,
            place=place,
            next_turn=self.next_turn,
        )
        settings = {key: block[key] for key in ("max_words", "language", "min_rounds")}
        return ask_step(ask, after=[after], branch=name, **settings)


class EditedTalks:
    """The dialogues of a chain, and in the place of some what was made anew since people edited them.

    Args:
        chain: Of the whole dialogues; it has run.
    """

    def __init__(self, run: RunFolder, config: Mapping[str, Any], plan: Plan, chain: Chain):
        self.run, self.config, self.plan, self.chain = run.stage(EDITS), config, plan, chain
        self.anew: dict[str, Row] = {}
        self.cut: dict[str, Row] = {}  # as far as the edited turn

    def rows(self) -> Iterator[Row]:
        """Reads the dialogues as they are now, holes among them: the branches of a topic side by side."""
        names = list(self.plan.writers)
        for rows in zip(*(self.chain.rows(self.plan.last(name)) for name in names), strict=True):
            for name, row in zip(names, rows, strict=True):
                key = f"{row[KEY]}{AT}{name}"
                yield self.anew.get(key) or self._named({**row, KEY: key}, name)

    def _named(self, row: Row, name: str) -> Row:
        return {**row, "branch": name, "model": self.plan.writers[name].model}

    def editable(self) -> Iterator[Row]:
        """Reads the dialogues as people edit them: of one that failed behind an edit the turns as far as the edit."""
        for row in self.rows():
            if is_hole(row) and row[KEY] in self.cut:
                yield {**self.cut[row[KEY]], "failed": row[HOLE]["why"]}
            else:
                yield row

    def numbers(self) -> list[str]:
        """The rounds of edits that are kept, the oldest first."""
        return sorted(path.parent.name for path in self.run.path.glob(f"*/{LEDGER}"))

    def keep(self, edits: Sequence[Edit]) -> str:
        """Keeps edits before anything is made of them, as the next round."""
        number = f"{len(self.numbers()) + 1:02d}"
        write_jsonl(self.run.path / number / LEDGER, (edit.to_dict() for edit in edits))
        return number

    def make(self, number: str) -> None:
        """Makes the dialogues anew that a round of edits is about."""
        stage = self.run.stage(number)
        edits = [Edit(**row) for row in read_jsonl(stage.path / LEDGER)]
        cut, left = apply_edits(edits, self.editable())
        for why, others in left.items():
            turns = ", ".join(f"{edit.dialogue} A{edit.round}" for edit in others[:3])
            log.warning("edits/%s: %d not taken, %s: %s", number, len(others), why, turns)
        steps: list[AnyStep] = []
        for name in (writers := dict.fromkeys(row["branch"] for row in cut)):
            own = [row for row in cut if row["branch"] == name]
            source = Source(name=f"{EDITED}-{name}", read=lambda own=own: own, settings={"rows": own})  # type: ignore[misc]
            steps += [source, *self.plan.turns(min(len(row["turns"]) for row in own), name, source.name)]
        if not steps:
            return
        chain = run_chain(stage, self.config, steps)
        assert chain is not None, "a dry run makes no dialogues to edit"
        self.cut |= {row[KEY]: row for row in cut}
        failed = 0
        for name in writers:
            for row in chain.rows(self.plan.last(name)):
                self.anew[row[KEY]] = self._named(row, name)
                failed += is_hole(row)
        again = f"; {failed} failed: edit them once more, or retry_holes=true" if failed else ""
        log.info("edits/%s: %d dialogues made anew%s", number, len(cut), again)
