"""Weakly labelled pairs from Wizard of Wikipedia: its turns as they are, and responses made from its knowledge.

`natural`: responses of people and models to a knowledge sentence, labelled by a teacher trained on the data audit.
`synthetic`: responses made from the sentences themselves (`pairs`), labelled by how they were made. Every record has
its P(hallucinated) in `meta["probability"]` and no label, so nothing is ever scored on it.
"""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from data_modules.datasets.audit import Audit
from data_modules.datasets.wow import WizardOfWikipedia
from data_modules.reading import File, ReadReport, Records, Source, read_examples, text_group
from data_modules.reading import check_text as check_field
from data_modules.reading.exclude import Excluded
from data_modules.splits import divide_groups
from data_modules.weak.synthetic_pairs import PROBABILITY, make_pairs
from faithkit.errors import UserError
from faithkit.provenance.row_keys import group_hash, text_key
from faithkit.records import Example
from faithkit.settings.check import check_value
from faithkit.settings.types import Count, NonNegativeInt, Share, Text, Texts
from faithkit.weights.resolve import resolve
from faithkit.words import sentences, unicode_content_words

VERSION = 2  # raised when the same files give other pairs
NATURAL, SYNTHETIC = "natural", "synthetic"
PAIR_KINDS = (NATURAL, SYNTHETIC)
TYPES = {
    "audit_path": Text | None,
    "splits": Texts | tuple[Text, ...] | None,
    "teacher": Text,
    **dict.fromkeys(("easy_share", "validation_fraction", "test_fraction"), Share),
    "max_words": Count,
    "seed": NonNegativeInt,
}


class WeakPair(NamedTuple):
    """A knowledge sentence with one response, by a person, a model or an edit (its `kind`)."""

    id: str
    knowledge: str
    response: str
    kind: str


@dataclass(frozen=True, kw_only=True)
class WeakWow(Source):
    """Pairs for training alone. The group is the knowledge, as in the data audit and in BEGIN.

    Args:
        path: Wizard of Wikipedia's folder; FaithDial's layout may have model replies in its folder `generations/`.
        audit_path: The data audit, from which the teacher learns; needed for natural pairs.
        kinds: natural, synthetic, or both.
        splits: Of Wizard of Wikipedia; None reads all that are there.
        max_words: Pairs of more words, knowledge and response together, are left out.
        easy_share: Of natural pairs that are hallucinated beyond doubt, the share that is kept.
        validation_fraction: Share of the audit's groups that validation takes under this seed: the teacher must not see
            them. Likewise `test_fraction`.
        teacher: Weights of the teacher's encoder.
        excluded: Knowledge and dialogues that must not be trained on: nothing is made from them.
    """

    name: ClassVar[str] = "weak_wow"
    train_only: ClassVar[bool] = True
    embedded_layout: ClassVar[str | None] = "wow_faithdial"
    embedded_options: ClassVar[Mapping[str, str]] = {"audit_path": "audit"}
    audit_path: str | None = None
    kinds: Sequence[str] = (SYNTHETIC,)
    splits: Sequence[str] | None = None
    max_words: int = 70
    easy_share: float = 0.45
    validation_fraction: float = 0.2
    test_fraction: float = 0.0
    teacher: str = "minilm"
    seed: int = 0
    excluded: Excluded = field(default_factory=Excluded)

    def __post_init__(self) -> None:
        if not self.kinds or set(self.kinds) - set(PAIR_KINDS):
            raise UserError(f"kinds is {list(self.kinds)}", hint=f"use {', '.join(PAIR_KINDS)}, or both")
        if NATURAL in self.kinds and self.audit_path is None:
            raise UserError("natural pairs need labels to learn from", hint="set audit_path to the data audit's folder")
        for name, kind in TYPES.items():
            check_value(name, getattr(self, name), kind)

    def files(self) -> Mapping[str, Sequence[File]]:
        """Returns all files that the records depend on."""
        files: list[File] = [
            file for split in self._splits() for file in WizardOfWikipedia(path=self.path).files()[split]
        ]
        if NATURAL in self.kinds:
            files += [*generation_files(self._wow_folder()), *self._audit().files()["all"]]
            files += sorted(Path(resolve(self.teacher)).glob("*.safetensors"))
        return {"train": files}

    def layout(self) -> Mapping[str, Any]:
        names = ("kinds", "splits", "max_words", "easy_share", "teacher", "seed")
        settings: dict[str, Any] = {name: getattr(self, name) for name in names}
        return {
            **settings,
            "fractions": [self.validation_fraction, self.test_fraction],
            "excluded": self.excluded.digest,
            "version": VERSION,
        }

    def excluding(self, excluded: Excluded) -> "WeakWow":
        """Leaves it out itself: neither teacher nor edits may see excluded knowledge."""
        return replace(self, excluded=excluded)

    def read_split(self, split: str, report: ReadReport) -> Records:
        """Yields all pairs of the kinds that are wanted."""
        wow, turns = WizardOfWikipedia(path=self.path), {}
        for name in self._splits():
            read = _read(wow, name, report)
            turns[name] = [replace(t, knowledge=t.knowledge.strip(), response=t.response.strip()) for t in read]
        if NATURAL in self.kinds:
            yield from ((example, None) for example in self._natural(turns, report))
        if SYNTHETIC in self.kinds:
            yield from ((example, None) for example in self._synthetic(turns, report))

    def _splits(self) -> Sequence[str]:
        have = WizardOfWikipedia(path=self.path).files()
        if missing := set(self.splits or ()) - set(have):
            raise UserError(f"no split {sorted(missing)[0]!r} here", place=self.path, hint=f"choose from {list(have)}")
        return list(self.splits or have)

    def _wow_folder(self) -> Path:
        first = next(iter(WizardOfWikipedia(path=self.path).files().values()))[0]
        assert isinstance(first, Path)
        return first.parent

    def _audit(self) -> Audit:
        assert self.audit_path is not None
        return Audit(path=self.audit_path, max_knowledge_words=self.max_words)

    def _allowed(self, examples: Sequence[Example], report: ReadReport) -> list[Example]:
        reasons = [self.excluded.reason(example) for example in examples]
        for reason in filter(None, reasons):
            report.count(reason)
        return [example for example, reason in zip(examples, reasons, strict=True) if reason is None]

    def _natural(self, turns: Mapping[str, list[Example]], report: ReadReport) -> Iterator[Example]:
        from data_modules.weak.teacher import Teacher

        distinct: dict[tuple[str, str], WeakPair] = {}
        for pair in self._natural_pairs(turns, report):
            if _num_words(pair.knowledge, pair.response) > self.max_words:
                report.count("dropped: too long")
            elif distinct.setdefault((text_key(pair.knowledge), text_key(pair.response)), pair) is not pair:
                report.count("dropped: repeated")
        teacher = Teacher(self.teacher, seed=self.seed)
        labelled = self._allowed(_read(self._audit(), "all", report), report)
        groups = np.array([group_hash(example.group) for example in labelled], np.uint64)
        held_out = {"validation": self.validation_fraction, "test": self.test_fraction}
        teacher.fit([labelled[i] for i in divide_groups(groups, held_out, self.seed)["train"]])
        pairs = list(distinct.values())
        probabilities = teacher.probabilities([(pair.knowledge, pair.response) for pair in pairs])
        for pair, probability in zip(pairs, probabilities, strict=True):
            # Beyond doubt for the teacher: only a share of such pairs is kept.
            if probability > 0.9 and random.Random(f"{self.seed}|{pair.id}").random() >= self.easy_share:
                report.count("dropped: easy")
            else:
                report.count(f"natural: {pair.kind}")
                yield self._example(pair, float(probability))

    def _natural_pairs(self, turns: Mapping[str, list[Example]], report: ReadReport) -> Iterator[WeakPair]:
        for split, examples in turns.items():
            for turn in self._allowed(examples, report):
                yield WeakPair(f"{split}/{turn.id}", turn.knowledge, turn.response, "gold")
        answered = turns.get("test", ())  # the generations answer the test dialogues
        allowed = {turn.id for turn in answered if not self.excluded.covers(turn)}
        for model, turn, response in read_generations(self._wow_folder(), answered, report):
            if turn.id in allowed:
                yield WeakPair(f"test/{turn.id}/{model}", turn.knowledge, response, model)

    def _synthetic(self, turns: Mapping[str, list[Example]], report: ReadReport) -> Iterator[Example]:
        documents: dict[str, list[tuple[str, str]]] = {}
        chat: list[str] = []
        seen: set[str] = set()
        for split, examples in turns.items():
            for turn in self._allowed(examples, report):
                known = set(unicode_content_words(turn.knowledge))
                for sentence in sentences(turn.response):  # small talk has little to do with the knowledge
                    words = unicode_content_words(sentence)
                    if 3 <= _num_words(sentence) <= 22 and words and sum(w in known for w in words) < 0.25 * len(words):
                        chat.append(sentence)
                if text_key(turn.knowledge) not in seen:
                    seen.add(text_key(turn.knowledge))
                    documents.setdefault(f"{split}/{turn.group}", []).append((f"{split}/{turn.id}", turn.knowledge))
        dialogues = list(documents.values())
        for pair in make_pairs([[knowledge for _, knowledge in d] for d in dialogues], chat, self.seed):
            if _num_words(pair.knowledge, pair.response) > self.max_words:
                report.count("dropped: too long")
                continue
            report.count(f"synthetic: {pair.kind}")
            turn_id = dialogues[pair.document][pair.sentence][0]
            made = WeakPair(f"{turn_id}/{pair.kind}", pair.knowledge, pair.response, pair.kind)
            yield self._example(made, PROBABILITY[pair.kind])

    def _example(self, pair: WeakPair, probability: float) -> Example:
        return Example(
            id=pair.id,
            source=self.name,
            split="train",
            group=text_group(pair.knowledge),
            knowledge=pair.knowledge,
            response=pair.response,
            meta={"probability": round(probability, 4), "kind": pair.kind},
        )


def _read(source: Source, split: str, report: ReadReport) -> list[Example]:
    """Reads another source; its bad rows are reported, and its counts under its name."""
    inner = ReadReport(report.on_bad_row)
    examples = list(read_examples(source, split, inner))
    report.rejects += inner.rejects
    for outcome, count in inner.counts.items():
        report.count(f"{source.name}: {outcome}", count)
    return examples


def _num_words(*texts: str) -> int:
    return sum(len(text.split()) for text in texts)


MAX_WORDS = 60  # longer replies ramble: they would teach length rather than faithfulness


def generation_files(folder: Path) -> list[Path]:
    """Finds the files of model replies, if there are any."""
    return sorted((folder / "generations").glob("*.json"))


def read_generations(folder: Path, turns: Sequence[Example], report: ReadReport) -> Iterator[tuple[str, Example, str]]:
    """Yields (model, turn, reply) for every reply to one of the turns.

    Dialogues are matched by their number, and taken only where both sides have as many turns.
    """
    dialogues: dict[str, list[Example]] = {}
    for turn in turns:
        dialogues.setdefault(turn.group, []).append(turn)
    for file in generation_files(folder):
        try:  # the first reply to each turn, by the dialogue's number
            content: Any = json.loads(file.read_text(encoding="utf-8-sig"))["generation"]
            replies = {str(i): [turn[0] for turn in dialogue["dialogue"]] for i, dialogue in enumerate(content)}
            for number, texts in replies.items():
                for text in texts:
                    check_field(text, f"reply in dialogue {number}", empty_ok=True)
        except (OSError, ValueError, RecursionError, KeyError, TypeError, IndexError) as error:
            hint = 'give {"generation": [{"dialogue": [[reply, ...], ...]}]}, or move the file away'
            raise UserError(f"not a file of generations: {error!r}", place=str(file), hint=hint) from error
        for number, answered in dialogues.items():
            found = replies.get(number)
            if found is None or len(found) != len(answered):
                report.count("generations: dialogues that do not match")
                continue
            for turn, reply in zip(answered, found, strict=True):
                if not reply.strip():
                    report.count("generations: empty")
                elif len(reply.split()) >= MAX_WORDS:
                    report.count("generations: too long")
                else:
                    yield file.stem, turn, reply.strip()
