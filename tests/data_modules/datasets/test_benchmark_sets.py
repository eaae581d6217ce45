"""Sets of claims and of spans that detectors are measured on: rows, labels and spans as the releases have them."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_modules.datasets.claim_sets import AGGREFACT_SETS, TRUE_FILES
from data_modules.reading.fields import text_group
from faithkit.errors import UserError
from faithkit.published.figures import published_table
from tests.data_modules.official import Rows
from tests.data_modules.official.benchmark_sets import (
    AGGREFACT,
    FAITHBENCH,
    INN,
    LETTUCE_CODE,
    LETTUCE_PROSE,
    MESSAGES,
    PLUS_PLUS_SPANS,
    POOL,
    PSILOQA,
    SUMMEDITS,
    TRUE_SETS,
    WICE,
    WICE_TOKENS,
    message,
    note,
    sample,
    span,
)
from tests.data_modules.official_rows import labels, make, read, read_around_a_bad_row, write

REAL = os.environ.get("FAITHKIT_TEST_DATA")


def write_parquet(folder: Path, **splits: Rows) -> Path:
    """The folder of a release: the rows of its splits as Parquet."""
    (folder / "data").mkdir(exist_ok=True)
    for split, rows in splits.items():
        pq.write_table(pa.Table.from_pylist(rows), folder / "data" / f"{split}-00000-of-00001.parquet")
    return folder


def test_the_release_is_read_by_split_and_set(tmp_path: Path) -> None:
    source = make("aggrefact", write_parquet(tmp_path, dev=AGGREFACT[:4], test=AGGREFACT))
    assert source.split_names() == ["validation", "test"]
    examples, counts = read(source)
    assert counts == {"kept": 7} and labels(examples) == {"faithful": 3, "hallucinated": 4}
    assert [one.meta["set"] for one in examples[::3]] == ["AggreFact-CNN", "Wice", "FactCheck-GPT"]
    assert len({one.group for one in examples}) == 2, "claims about one document stay together"
    assert len(read(source, "validation")[0]) == 4
    examples, counts = read(make("aggrefact", tmp_path, sets="wice"))
    assert len(examples) == 3 and counts["dropped: set AggreFact-CNN"] == 2, "a set can be chosen"


def test_trues_sets_are_its_files(tmp_path: Path) -> None:
    for name in ("frank_valid_download", "paws_download"):
        write(tmp_path / f"{name}.csv", TRUE_SETS)
    examples, counts = read(make("true_sets", tmp_path))
    assert counts["kept"] == 14 and [one.meta["set"] for one in examples[::7]] == ["frank", "paws"]
    assert labels(examples) == {"faithful": 6, "hallucinated": 8}
    with pytest.raises(UserError, match="the file's name 'mine' is of no set; known: mnbm_download"):
        read(make("true_sets", write(tmp_path / "mine.csv", TRUE_SETS)))


def test_the_published_tables_name_the_sets_as_the_data_do() -> None:
    assert all(set(AGGREFACT_SETS) < set(row) for row in published_table("aggrefact_leaderboard").rows)
    for name in ("true_metrics", "granite_guardian_true"):
        assert set(published_table(name).rows[0]) - {"system"} <= set(TRUE_FILES.values())


def test_the_releases_parquet_gives_spans_of_every_language(tmp_path: Path) -> None:
    source = make("psiloqa", write_parquet(tmp_path, train=PSILOQA, test=PSILOQA))
    assert source.split_names() == ["train", "test"]
    examples, counts = read(source)
    assert counts == {"kept": 5} and labels(examples) == {"hallucinated": 3, "faithful": 2}
    marked = [[one.response[span.start : span.end] for span in one.spans or ()] for one in examples]
    assert marked == [["southern coast"], [], ["90 metriä"], ["kesäkuussa", "uima-allas"], []]
    assert [one.meta["language"] for one in examples] == ["en", "en", "fi", "fi", "zh"]
    second = examples[1]
    assert (second.knowledge, second.reference, second.history[0].text) == (INN, "A lake.", "What is Orvel?")
    path = write(tmp_path / "test.jsonl", [{**PSILOQA[0], "labels": [[0, 6]]}, *PSILOQA[1:]])
    examples, counts = read(make("psiloqa", path))
    assert counts["labels and annotated_span disagree, the labels count"] == 1
    assert [(span.start, span.end) for span in examples[0].spans or ()] == [(0, 6)]
    examples, counts = read(make("psiloqa", path, languages="zh"))
    assert [(one.label, one.spans) for one in examples] == [("faithful", ())], "a language without spans"
    assert counts["dropped: language fi"] == 2


def write_batch(folder: Path, batch: Any = FAITHBENCH[0]) -> Path:
    return write(folder / "data_for_release" / "batch_1.json", batch)


def test_a_summary_is_of_its_worst_label(tmp_path: Path) -> None:
    write_batch(tmp_path)
    (tmp_path / "annot").mkdir()
    (tmp_path / "annot" / "batch_1_annotation.json").write_text("{}")  # the repository has others of such names
    examples, counts = read(make("faithbench", tmp_path))
    assert [one.meta["level"] for one in examples] == ["consistent", "unwanted", "questionable", "benign", "consistent"]
    assert [one.label for one in examples] == ["faithful", "hallucinated", "hallucinated", "faithful", "faithful"]
    assert counts == {"kept": 5, "annotations without a label, left out": 1}
    pool = examples[1]
    assert [pool.response[span.start : span.end] for span in pool.spans or ()] == ["a pool"], "two annotators, one span"
    assert [span.relation for span in pool.spans or ()] == ["unsupported_addition"], "of the worse label"
    assert pool.tags == ("Unwanted", "Unwanted.Extrinsic", "Questionable", "Benign")
    assert examples[3].spans == () and pool.meta["model"] == "maker/model-1" and pool.id == "batch_1:1"


@pytest.mark.parametrize(
    ("option", "value", "number", "label"),
    [
        ("questionable", "faithful", 2, "faithful"),
        ("questionable", "drop", 2, None),
        ("benign", "hallucinated", 3, "hallucinated"),
    ],
)
def test_an_option_names_a_level(tmp_path: Path, option: str, value: str, number: int, label: str | None) -> None:
    examples, counts = read(make("faithbench", write_batch(tmp_path), **{option: value}))
    assert {one.id: one.label for one in examples}.get(f"batch_1:{number}") == label
    assert counts["kept"] == 5 - counts["dropped: questionable"] == 4 + (label is not None)
    assert all(one.spans for one in examples if one.label == "hallucinated")


def test_a_span_whose_offsets_miss_its_text_is_moved_there_and_counted(tmp_path: Path) -> None:
    shifted = note(POOL, "a pool", "Unwanted") | {"summary_start": 1, "summary_end": 7}
    batch = write_batch(tmp_path, {"samples": [sample(0, POOL, shifted)]})
    table = corpus(tmp_path, spans=[span("a1", 8, 17, "ten rooms")])
    for source, text in ((make("faithbench", batch), "a pool"), (make("ragtruth_plus_plus", table), "ten rooms")):
        (first, *_), counts = read(source)
        assert counts["span moved to its text, which its offsets miss"] == 1
        assert [first.response[one.start : one.end] for one in first.spans or ()] == [text]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"summary_end": 99}, r"samples\[1\]: annotations\[0\]: a span from 29 to 99 is none of the answer's 36"),
        ({"summary_span": "a sauna"}, "the text of a span is 'a sauna', but the answer has 'a pool' at 29 to 35"),
        ({"label": ["Funny"]}, "field 'label' has 'Funny'; known: Unwanted, Questionable"),
        ({"label": "Unwanted"}, "field 'label' must be a list"),
    ],
)
def test_a_bad_annotation_costs_its_summary_alone(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    bad = sample(1, POOL, note(POOL, "a pool", "Unwanted") | change)
    path = write_batch(tmp_path, {"samples": [sample(0, POOL), bad, sample(2, POOL)]})
    assert len(read_around_a_bad_row("faithbench", path, message, "batch_1.json, line 1")) == 2


def corpus(folder: Path, messages: Rows = MESSAGES, spans: Rows = PLUS_PLUS_SPANS) -> Path:
    write(folder / "hallucination_spans.csv", spans)
    write(folder / "messages.csv", messages)
    return folder


def test_an_answer_has_the_prompt_of_its_thread_and_its_spans(tmp_path: Path) -> None:
    examples, counts = read(make("ragtruth_plus_plus", corpus(tmp_path)))
    assert counts == {"kept": 2} and [one.label for one in examples] == ["hallucinated", "faithful"]
    first = examples[0]
    assert (first.id, first.split) == ("a1", "test") and first.knowledge.endswith(INN)
    found = [(first.response[one.start : one.end], one.label) for one in first.spans or ()]
    assert found == [("ten rooms", "evident_conflict"), ("a pool", "hallucination")]
    assert first.tags == ("Invented", "Evident Conflict") and examples[1].spans == ()
    assert first.meta == {"model": "small", "original_id": "17"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"end_pos": "99"}, "a span from 22 to 99 is none of the answer's 29 characters"),
        ({"start_pos": "-1"}, "'start_pos' must be a whole number from 0, got '-1'"),
        ({"span_text": "a sauna"}, "the text of a span is 'a sauna', but the answer has 'a pool'"),
        ({"message_stable_id": "a9"}, "'message_stable_id' is 'a9': messages.csv has no such message"),
    ],
)
def test_a_bad_span_never_makes_its_answer_faithful(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    folder = corpus(tmp_path, spans=[{**PLUS_PLUS_SPANS[0], **change}])
    examples = read_around_a_bad_row("ragtruth_plus_plus", folder, message, "hallucination_spans.csv, line 2")
    assert {one.id for one in examples} == ({"a1", "a2"} if "message_stable_id" in change else {"a2"})


def test_messages_that_make_no_pair(tmp_path: Path) -> None:
    alone = message("a3", "assistant", 0, "Yes.", "t3")
    with pytest.raises(UserError, match="an answer without a prompt"):
        read(make("ragtruth_plus_plus", corpus(tmp_path, [*MESSAGES, alone])))
    with pytest.raises(UserError, match="field 'role' is 'tool'; known: 'user', 'assistant'"):
        read(make("ragtruth_plus_plus", corpus(tmp_path, [{**alone, "role": "tool"}])))
    (corpus(tmp_path) / "hallucination_spans.csv").unlink()
    with pytest.raises(UserError, match=r"no hallucination_spans.csv next to the messages"):
        read(make("ragtruth_plus_plus", tmp_path))


def test_edited_summaries_are_read_by_split_and_domain(tmp_path: Path) -> None:
    for domain in ("news", "sales_call"):
        write(tmp_path / f"summedits_{domain}.json", [{**row, "id": f"{domain}{row['id']}"} for row in SUMMEDITS])
    examples, counts = read(make("summedits", tmp_path))
    assert counts == {"kept": 6} and labels(examples) == {"faithful": 2, "hallucinated": 4}
    assert [one.meta["domain"] for one in examples[::3]] == ["news", "sales_call"]
    assert examples[2].tags == ("antonym_swap", "negation_insertion_removal")
    assert (examples[1].original, examples[1].knowledge) == ("The inn has rooms.", INN)
    assert [one.id for one in read(make("summedits", tmp_path), "validation")[0]] == ["newsnews_3", "sales_callnews_3"]
    both, counts = read(make("summedits", tmp_path, official_split=False, domains="news"))
    assert len(both) == 4 and counts["dropped: domain sales_call"] == 4, "the paper's figures are of all rows"
    with pytest.raises(UserError, match="the file's name is of no domain: 'mine'; known: news"):
        read(make("summedits", write(tmp_path / "mine" / "summedits_mine.json", SUMMEDITS)))
    with pytest.raises(UserError, match="'split' is 'train'; known: 'evaluation', 'test'"):
        read(make("summedits", write(tmp_path / "one" / "summedits_news.json", [{**SUMMEDITS[0], "split": "train"}])))


def test_claims_are_read_with_their_page_and_unsupported_tokens(tmp_path: Path) -> None:
    for name, rows in (("dev", WICE[:2]), ("test", WICE)):
        write(tmp_path / "data" / "entailment_retrieval" / "claim" / f"{name}.jsonl", rows)
    write(tmp_path / "data" / "non_supported_tokens" / "dev.jsonl", WICE_TOKENS)
    source = make("wice", tmp_path)
    assert source.split_names() == ["validation", "test"]
    examples, _ = read(source)
    assert [one.label for one in examples] == ["faithful", "hallucinated", "hallucinated"]
    assert [one.tags for one in examples] == [("supported",), ("partially_supported",), ("not_supported",)]
    assert examples[0].knowledge.splitlines()[1] == "The Orvel Inn has twelve rooms." and examples[0].spans is None
    assert len({one.group for one in examples}) == 1, "claims that cite one page stay together"
    (marked,), _ = read(make("wice", tmp_path, units="tokens"))
    assert [marked.response[span.start : span.end] for span in marked.spans or ()] == ["ten", "a pool"]
    with pytest.raises(UserError, match=r"looked for .*/subclaim/train\.jsonl"):
        read(make("wice", tmp_path, units="subclaim"))
    without = write(tmp_path / "non_supported_tokens" / "dev.jsonl", WICE)
    with pytest.raises(UserError, match="looked for claim, evidence, label, meta, claim_tokens, non_supported_spans"):
        read(make("wice", without, units="tokens"))


def test_answers_on_code_keep_their_types_and_each_repository_is_one_group(tmp_path: Path) -> None:
    rows = [row | {"metadata": json.dumps(row["metadata"])} for row in LETTUCE_CODE if row["metadata"] is None]
    rows += [row for row in LETTUCE_CODE if isinstance(row["metadata"], str)]
    source = make("lettucedetect_code", write_parquet(tmp_path, validation=rows, test=rows))
    assert source.split_names() == ["validation", "test"] and len(read(source)[0]) == 4
    examples, counts = read(make("lettucedetect_code", write(tmp_path / "test.jsonl", LETTUCE_CODE)))
    assert counts == {"kept": 5} and labels(examples) == {"hallucinated": 2, "faithful": 3}
    agent, tool, readme, paper, article = examples
    found = [(agent.response[span.start : span.end], span.label) for span in agent.spans or ()]
    assert found == [("open_rooms", "fabricated_reference/identifier"), ("pool=True", "unsupported_addition/behavior")]
    assert agent.tags == ("fabricated_api", "unrequested_change")
    assert agent.group == tool.group == readme.group == "orvel__inn-tools"
    assert paper.group == "acl:P17-1" and article.group == text_group(INN)
    assert (agent.knowledge, agent.history[0].text, agent.id) == (INN, "How many rooms?", "test:0")
    assert agent.meta == {"set": "code-agent", "task": "qa", "language": "en", "modality": "code"}
    examples, counts = read(make("lettucedetect_code", tmp_path / "test.jsonl", sets=["readme", "acl"]))
    assert len(examples) == 2 and counts["dropped: set code-agent"] == 1


def test_prose_with_types_has_the_prompt_where_a_row_has_no_context(tmp_path: Path) -> None:
    write(tmp_path / "dev.jsonl", LETTUCE_PROSE)
    write(tmp_path / "train.jsonl", LETTUCE_PROSE[:1])
    source = make("lettucedetect_prose", tmp_path)
    assert source.split_names() == ["train", "validation"]
    (finnish, summary), counts = read(source, "validation")
    assert counts["rows without a context, whose prompt is the knowledge"] == 1
    assert (finnish.meta["language"], finnish.tags) == ("fi", ("hallucination",))
    assert (summary.knowledge, summary.history) == (LETTUCE_PROSE[1]["prompt"], ())
    assert [span.label for span in summary.spans or ()] == ["contradiction"], "a category without a subcategory"


@pytest.mark.skipif(not REAL, reason="FAITHKIT_TEST_DATA names no folder with the corpora")
def test_the_releases_are_read_whole() -> None:
    folder = Path(REAL or "")
    edits, counts = read(make("summedits", folder / "summedits", official_split=False))
    assert len(edits) == counts["kept"] == 3116
    assert len({one.group for one in edits if one.meta["domain"] == "news"}) == 25
    claims, _ = read(make("wice", folder / "wice"))
    assert labels(claims) == {"hallucinated": 234, "faithful": 115}
    source = make("wice", folder / "wice", units="tokens")
    marked = [one for split in source.split_names() for one in read(source, split)[0]]
    assert len(marked) == 498 and all(one.spans for one in marked)
