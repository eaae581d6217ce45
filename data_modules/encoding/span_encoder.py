"""(question, context, answer) for a span tagger: one tag for each token of the answer.

The cache keeps the three texts' tokens whole. What does not fit into a sequence is cut into overlapping windows when a
batch is made: windows over the context, each with the question before it, and, where an answer alone is long, windows
over the answer too. A token of the answer in several windows takes the logits of the
window with the lowest log-odds of hallucinated (`critic.tagger.windows`).

A batch lies flat: in `input_ids`, padded or packed, every window is a stretch of places counted over the whole batch.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from data_modules.encoding.encoder import (
    ENCODING_VERSION,
    NO_LABEL,
    Columns,
    Encoder,
    Ints,
    Ragged,
    Subset,
    constant_rows,
    join_rows,
    offsets_of,
    pad_rows,
    question_text,
    steps_of,
)
from data_modules.encoding.tokens import (
    OUTSIDE,
    UNTYPED_TAG,
    PairTemplate,
    Tokenizer,
    fingerprint_of,
    tags_of,
    tokenize,
    tokenize_with_offsets,
    visible_extents,
)
from data_modules.encoding.window_choice import WindowChoice
from faithkit.errors import UserError
from faithkit.records import LABELS, Example

OVERLAP = 4  # windows share one part in so many


@dataclass(frozen=True, kw_only=True)
class SpanEncoder(Encoder):
    """Question and context as the first text of a pair, the answer as the second.

    Args:
        max_length: Tokens of a window, special tokens counted.
        packed: Windows one behind the other without padding (`faithkit.fast.Packing`), instead of padded.
        max_windows: Of a longer context, read this many windows for each part of the answer, made of the parts of the
            context that share most tokens with it (`data_modules.encoding.window_choice`). None reads all.
    """

    numbers_passages: ClassVar[bool] = True
    tokenizer: Tokenizer
    max_length: int
    packed: bool = False
    max_windows: int | None = None
    template: PairTemplate = field(init=False)
    choice: WindowChoice = field(init=False, repr=False, compare=False)
    untyped: bool = field(init=False, default=False, compare=False)  # all marked spans of training are of no type

    def __post_init__(self) -> None:
        object.__setattr__(self, "template", PairTemplate.of(self.tokenizer))
        object.__setattr__(self, "choice", WindowChoice.of(self.tokenizer))
        if self.max_length < self.template.num_special + len(self.template.middle) + 32:
            raise UserError(f"model.max_length is {self.max_length}", hint="use at least 64")
        if self.max_windows is not None and self.max_windows < 1:
            raise UserError(f"model.max_windows is {self.max_windows}", hint="use 1 or more, or null for all")

    def fingerprint(self) -> str:
        return f"span parts:{ENCODING_VERSION}:{self.max_length}:{self.max_windows}:{fingerprint_of(self.tokenizer)}"

    def fit(self, train: Sequence[Subset]) -> None:
        marked: set[int] = set()
        for subset in train:
            tags = subset.encoded.columns["tag"]
            assert isinstance(tags, Ragged)
            marked |= {int(tag) for tag in np.unique(tags.take(subset.indices).values) if tag > OUTSIDE}
        object.__setattr__(self, "untyped", marked == {UNTYPED_TAG})

    def encode(self, examples: Sequence[Example], counts: Counter[str]) -> Columns:
        """Returns the three texts' tokens, the extents and tags of the answer's, length and label of the examples."""
        columns = self.encode_texts(
            [question_text(example) for example in examples],
            [example.knowledge for example in examples],
            [example.response for example in examples],
        )
        start, end = columns["start"], columns["end"]
        assert isinstance(start, Ragged) and isinstance(end, Ragged)
        rows = [
            tags_of(example.spans or (), start.row(i), end.row(i), len(example.response))
            for i, example in enumerate(examples)
        ]
        unmarked = [i for i, example in enumerate(examples) if example.spans is None]
        for i in unmarked:
            rows[i][:] = -1  # no spans were annotated: nothing to learn from its tokens
        labels = [NO_LABEL if e.label is None else LABELS.index(e.label) for e in examples]
        columns["tag"] = Ragged.from_lists([row.tolist() for row in rows])
        columns["label"] = np.array(labels, np.int8)
        windows = self.windows(columns)
        per_row = np.bincount(windows.row, minlength=len(examples))
        columns["length"] = np.bincount(windows.row, windows.lengths, len(examples)).astype(np.int32)
        counts["read through several windows"] += int((per_row > 1).sum())
        counts["without span marks"] += len(unmarked)
        return columns

    def encode_texts(self, questions: Sequence[str], contexts: Sequence[str], answers: Sequence[str]) -> Columns:
        """Returns tokens of the three texts, and the extents of the answer's tokens."""
        ids, offsets = tokenize_with_offsets(self.tokenizer, answers)
        extents = [visible_extents(text, each) for text, each in zip(answers, offsets, strict=True)]
        where = offsets_of(ids.lengths)
        nothing = np.zeros(0, np.int64)
        start, end = (np.concatenate([nothing, *(extent[side] for extent in extents)]) for side in (0, 1))
        return {
            "question": tokenize(self.tokenizer, questions),
            "context": tokenize(self.tokenizer, contexts),
            "answer": ids,
            "start": Ragged(start.astype(np.int32), where),
            "end": Ragged(end.astype(np.int32), where),
        }

    def windows(self, columns: Mapping[str, Any]) -> "Windows":
        """Returns the windows of some rows, row by row; of each row those of the answer's first part come first."""
        question, context, answer = (columns[name].lengths for name in ("question", "context", "answer"))
        asked = np.minimum(question, self.max_length // 4)
        # A question is a text more, so it brings the tokens between two texts once more.
        special = self.template.num_special + np.where(asked > 0, len(self.template.middle), 0)
        room = self.max_length - special - asked
        answer_count, answer_step, answer_size = _cut(answer, room // 2)
        context_count, context_step, context_size = _cut(context, room - answer_size)
        count = answer_count * context_count
        row = np.repeat(np.arange(len(count)), count)
        part, piece = np.divmod(steps_of(count), context_count[row])
        # The last window ends with its text.
        answer_start = np.minimum(part * answer_step[row], (answer - answer_size)[row])
        context_start = np.minimum(piece * context_step[row], (context - context_size)[row])
        found = Windows(row, asked[row], context_start, context_size[row], answer_start, answer_size[row], special[row])
        if self.max_windows is None or not (context_count > self.max_windows).any():
            return found
        sizes = np.repeat(context_count, answer_count)
        first = offsets_of(sizes)[:-1]  # the windows of one part of an answer show the same of it
        start, size = found.answer_start[first], found.answer_size[first]
        answer_parts = columns["answer"].slice_rows(found.row[first], start, size)
        extents = found.context_start, found.context_size
        texts = columns["context"], found.row[first]
        kept, shown = self.choice.choose(answer_parts, *texts, sizes, *extents, self.max_windows)
        return replace(found.take(kept), context_size=shown.lengths, shown=shown)

    def collate(self, columns: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """Returns arrays of a batch of whole rows: the windows, and what training needs in addition.

        `token_row` [tokens] is the row of each answer token, `tag` [tokens] its tag, `characters` [tokens] how many it
        covers, `label` [rows] the response's.
        """
        answers, batch = columns["answer"], self.collate_windows(columns, self.windows(columns))
        batch["token_row"] = np.repeat(np.arange(len(answers)), answers.lengths)
        batch["tag"] = columns["tag"].values.astype(np.int64)
        batch["characters"] = (columns["end"].values - columns["start"].values).astype(np.int64)
        batch["label"] = np.asarray(columns["label"], np.int64)
        return batch

    def collate_windows(self, columns: Mapping[str, Any], windows: "Windows") -> dict[str, NDArray[Any]]:
        """Returns the model's inputs for some windows, and the places of their parts.

        `bounds` [windows, 4] has the places at which a window's context and answer begin and end; `token` says for each
        place of an answer, window by window, which answer token it is, counted over all rows of the columns.
        """
        row, template, zeros = windows.row, self.template, np.zeros(len(windows.row), np.int64)
        middle, context = constant_rows(template.middle, len(row)), windows.shown
        if context is None:
            context = columns["context"].slice_rows(row, windows.context_start, windows.context_size)
        ids = join_rows(
            [
                constant_rows(template.prefix, len(row)),
                # Of a long history the newest turns: the end.
                columns["question"].slice_rows(row, columns["question"].lengths[row] - windows.asked, windows.asked),
                middle.slice_rows(np.arange(len(row)), zeros, np.where(windows.asked > 0, len(template.middle), 0)),
                context,
                middle,
                columns["answer"].slice_rows(row, windows.answer_start, windows.answer_size),
                constant_rows(template.suffix, len(row)),
            ]
        )
        context_at = len(template.prefix) + np.where(windows.asked > 0, windows.asked + len(template.middle), 0)
        lengths = ids.lengths
        width = int(lengths.max(initial=0))
        begins = ids.offsets[:-1] if self.packed else np.arange(len(ids)) * width
        answer_at = context_at + windows.context_size + len(self.template.middle)
        bounds = np.stack([context_at, context_at + windows.context_size, answer_at, answer_at + windows.answer_size])
        first = columns["answer"].offsets[windows.row] - columns["answer"].offsets[0] + windows.answer_start
        batch: dict[str, NDArray[Any]] = {
            "bounds": (bounds + begins).T.astype(np.int64),
            "token": np.repeat(first, windows.answer_size) + steps_of(windows.answer_size),
        }
        if self.packed:
            step = steps_of(lengths)
            second = (step >= np.repeat(answer_at, lengths))[None]
            batch |= {
                "input_ids": ids.values[None].astype(np.int64),
                "position_ids": step[None],
                "window_lengths": lengths,
            }
        else:
            place = np.arange(width)[None, :]
            inside = place < lengths[:, None]
            second = (place >= answer_at[:, None]) & inside
            batch |= {
                "input_ids": pad_rows(ids, self.tokenizer.pad_token_id),
                "attention_mask": inside.astype(np.int64),
            }
        if self.template.typed:
            batch["token_type_ids"] = second.astype(np.int64)
        return batch


@dataclass(frozen=True, slots=True)
class Windows:
    """For each window its row, the size of the question, and which stretches of context and answer it shows.

    Args:
        shown: Tokens of the context [windows], if windows are not stretches of it.
    """

    row: Ints
    asked: Ints
    context_start: Ints
    context_size: Ints
    answer_start: Ints
    answer_size: Ints
    num_special: Ints
    shown: Ragged | None = None

    @property
    def lengths(self) -> Ints:
        return self.num_special + self.asked + self.context_size + self.answer_size

    def take(self, chosen: Ints) -> "Windows":
        shown = None if self.shown is None else self.shown.take(chosen)
        kept = {name: getattr(self, name)[chosen] for name in self.__slots__ if name != "shown"}
        return Windows(**kept, shown=shown)


def _cut(length: Ints, most: Ints) -> tuple[Ints, Ints, Ints]:
    """Counts the windows of at most so many tokens that cover a text; gives also their step and their size.

    As few windows as will do, and these no longer than they must be.
    """
    overlap = most // OVERLAP
    count = 1 + -(-np.maximum(0, length - most) // np.maximum(1, most - overlap))
    size = np.where(count > 1, -(-(length + (count - 1) * overlap) // count), length)
    return count, np.maximum(1, size - overlap), size
