"""Prompts are filled as they stand with the same examples before every request; a user's folder declares replies."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from faithkit.errors import UserError
from faithkit.inference.text import SYSTEM, USER
from faithkit.records import FAITHFUL, HALLUCINATED, UNPARSED, Example, Span, Turn
from judge.judge import Judge
from judge.options import AskOptions, PromptHeader
from judge.prompt import (
    PromptTemplate,
    build_prompts,
    draw_shots,
    find_shots,
    read_prompt,
    read_prompts,
    read_shots,
    with_shots,
)
from judge.questions import COMPARATIVE, Asker
from judge.reply import ASKINGS, parse_steps, read_first_word, target_text
from tests.data_modules.examples import example
from tests.data_modules.official_rows import write
from tests.judge.engines import SetEngine
from tests.judge.test_judge import KNOWLEDGE, TEN, TWELVE

TEXT = "Look.\n\nKnown: {knowledge}\n\nSaid:\n{history}\n\nReply: {response}\n\nIs it wrong?"


def asked(knowledge: str = "It is red.", history: tuple[str, ...] = ("Which?",), response: str = "Blue.") -> Example:
    turns = tuple(Turn(speaker=("seeker", "wizard")[i % 2], text=text) for i, text in enumerate(history))
    return example(knowledge=knowledge, history=turns, response=response)


def test_fields_are_filled_speakers_named_and_paragraphs_without_anything_to_say_left_out() -> None:
    filled = PromptTemplate(TEXT).fill(asked(history=("Which?", "That.", "Sure?")))
    said = "[Human]: Which?\n[Assistant]: That.\n[Human]: Sure?"
    assert filled == f"Look.\n\nKnown: It is red.\n\nSaid:\n{said}\n\nReply: Blue.\n\nIs it wrong?"
    assert PromptTemplate(TEXT).fill(asked("", ())) == "Look.\n\nReply: Blue.\n\nIs it wrong?"
    short = PromptTemplate("{question}|{dialogue}|{response}").fill(asked(history=("Which?", "That.", "Sure?")))
    assert short == "Sure?|[Human]: Which? [Assistant]: That. [Human]: Sure?|Blue."


@given(st.text(max_size=40))
def test_what_looks_like_a_field_in_a_text_stays_as_it_is(text: str) -> None:
    response = f"{text} {{knowledge}} {{history}}"
    assert response.strip() in PromptTemplate(TEXT).fill(asked(response=response))


DIGESTS = {"verdict": "e30f7b94548d31e9", "judgement": "2ceb408efb97e44b"}
DIGESTS |= {"steps": "edea65637ab628b2", "spans": "d9fb7c43dcd13405"}


@pytest.mark.parametrize("name", DIGESTS)
def test_our_prompts_are_asked_byte_for_byte_and_share_their_beginning(name: str) -> None:
    """Results were taken with these bytes; engines read all before the reply once."""
    first, second = (read_prompt(name).fill(asked(response=response)) for response in ("Blue.", "Green."))
    assert hashlib.sha256(first.encode()).hexdigest()[:16] == DIGESTS[name]
    shared = next(i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    assert first[:shared].endswith("Reply to check:\n")
    assert "It is red." in first[:shared] and "[Human]: Which?" in first[:shared]


ROW = {"knowledge": KNOWLEDGE, "history": ["Is it {response}?"], "response": TWELVE, "reply": 'Yes. "twelve" is wrong.'}


def rows(count: int = 10) -> list[Example]:
    marked = {"response": TWELVE, "label": HALLUCINATED, "spans": (Span(start=17, end=23, label="x"),)}
    kinds = [{"response": TEN, "label": FAITHFUL, "spans": ()}, marked] * count
    return [example(id=str(i), group=str(i), knowledge=KNOWLEDGE, **kinds[i]) for i in range(count)]


def write_shots(folder: Path, *given: dict[str, object]) -> str:
    return str(write(folder / "examples.jsonl", list(given)))


@pytest.mark.parametrize("name", ASKINGS)
def test_examples_stand_behind_the_instruction_and_all_requests_begin_with_them(name: str, tmp_path: Path) -> None:
    shots = read_shots(write_shots(tmp_path, ROW, {**ROW, "knowledge": "", "history": None, "reply": "No."}))
    plain = read_prompt(name)
    filled = [with_shots(plain, shots).fill(row) for row in rows(2)]
    shared = next(i for i, (a, b) in enumerate(zip(*filled, strict=False)) if a != b)
    instruction, question = plain.fill(rows(2)[0]).split("\n\nKnowledge:")
    assert filled[0].startswith(instruction) and filled[0].endswith(question)
    assert filled[0].index("Example 1\n\nKnowledge:\n") < filled[0].index("Example 2\n\nReply to check:\n") < shared
    assert "[Human]: Is it {response}?" in filled[0][:shared], "what looks like a field stays as it is"
    assert filled[0][:shared].index('Yes. "twelve" is wrong.\n\nExample 2') and "\n\nNo.\n\nNow" in filled[0][:shared]


def test_a_prompt_of_ones_own_says_where_examples_stand() -> None:
    text = "Look.\n\n{examples}\n\nThink hard.\n\n{knowledge}\n\n{history}\n\n{response}"
    template = PromptTemplate(text)
    [row] = rows(1)
    assert template.fill(row) == f"Look.\n\nThink hard.\n\n{KNOWLEDGE}\n\n{TEN}"
    filled = with_shots(template, [replace(row, target="No")]).fill(row)
    assert filled.startswith(f"Look.\n\nExample 1\n\n{KNOWLEDGE}\n\n{TEN}\n\nNo\n\nNow") and "Think hard." in filled
    assert with_shots(template, [replace(row, target="No")]).fingerprint != template.fingerprint


def test_drawn_examples_take_turns_between_the_classes_and_hang_on_the_seed() -> None:
    chosen = draw_shots(rows(), "verdict", 3, seed=1)
    assert [shot.target for shot in chosen] == ["Yes", "No", "Yes"]
    assert chosen == draw_shots(rows(), "verdict", 3, seed=1) != draw_shots(rows(), "verdict", 3, seed=2)
    [spans] = draw_shots(rows(), "spans", 1, seed=0)
    assert spans.target == '{"hallucinations": ["twelve"]}'
    with pytest.raises(UserError, match="4 rows are left"):
        draw_shots(rows(4), "verdict", 5, seed=0)
    with pytest.raises(UserError, match=r"no row tells the right reply\n.*judge.examples=FILE"):
        draw_shots(rows(), "steps", 1, seed=0)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"knowledge": "a", "response": "b"}, r"'reply' must be text"),
        ({**ROW, "response": " "}, r"'response' is empty"),
        ({**ROW, "answer": "x"}, r"no field 'answer'"),
        ({**ROW, "history": [5]}, r"history"),
    ],
)
def test_a_row_that_is_no_example_is_named_by_its_line(row: dict[str, object], problem: str, tmp_path: Path) -> None:
    path = write_shots(tmp_path, ROW, row)
    with pytest.raises(UserError, match=problem) as raised:
        read_shots(path)
    assert "line 2" in str(raised.value)
    with pytest.raises(UserError, match="does not exist"):
        read_shots(str(tmp_path / "none.jsonl"))


def test_a_judge_asks_with_the_examples_of_a_file(tmp_path: Path) -> None:
    engine = SetEngine()
    Judge.load(engine, ask="steps", examples=write_shots(tmp_path, ROW)).judge(KNOWLEDGE, TEN)
    assert 'Yes. "twelve" is wrong.' in engine.asked[0]
    with pytest.raises(UserError, match=r"only evaluate\.py can draw rows"):
        Judge.load(engine, examples=3)  # type: ignore[arg-type]


RESPONSE = "It flows through twelve countries."
JSON, LISTS = "reply: json\nverdict: found\nspans: parts", "reply: json\nspans: [a, b]"
HALU = "reply: first_word\nhallucinated: Halu\nfaithful: Non-Halu\nsystem: Be strict."
PATTERN = "reply: text\nhallucinated: is wrong\nfaithful: is not wrong|is right"


def write_prompts(folder: Path, **files: str) -> str:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name.replace('__', '.')}.txt").write_bytes(text.encode(errors="surrogateescape"))
    return str(folder)


def judged(folder: Path, header: str, reply: str, ask: str = "verdict") -> tuple[str, list[str]]:
    """Parses a reply to a prompt with this header; returns the label and the texts of the spans."""
    prompts = write_prompts(folder, **{ask: f"---\n{header}\n---\nIs it wrong? {{response}}"})
    engine = SetEngine(says=lambda prompt: [reply])
    found = Judge.load(engine, ask=ask, prompts=prompts).judge("It flows through ten.", RESPONSE)
    assert engine.asked == [f"Is it wrong? {RESPONSE}"], "the header is no part of the prompt"
    return found.label, [RESPONSE[span.start : span.end] for span in found.spans]


@pytest.mark.parametrize(
    ("header", "reply", "label", "parts"),
    [
        (JSON, '{"found": "yes", "parts": ["twelve countries"]}', HALLUCINATED, ["twelve countries"]),
        (JSON, '```json\n{"found": true, "parts": "twelve"}\n```', HALLUCINATED, ["twelve"]),
        (JSON, '{"found": "No", "parts": ""}', FAITHFUL, []),
        (JSON, '{"found": "no", "parts": ["twelve"]}', FAITHFUL, []),
        (JSON, '{"found": "yes"}', HALLUCINATED, []),
        (JSON, '{"hallucinated": "yes", "parts": []}', UNPARSED, []),
        (LISTS, '{"a": [], "b": ["twelve"]}', HALLUCINATED, ["twelve"]),
        (LISTS, '{"a": [], "b": []}', FAITHFUL, []),
        (LISTS, '{"a": ["twelve"]}', UNPARSED, []),
        ("reply: json\nverdict: right\nhallucinated: no\nfaithful: yes", '{"right": "no"}', HALLUCINATED, []),
        (HALU, "Non-Halu.", FAITHFUL, []),
        (HALU, 'halu: "twelve"', HALLUCINATED, ["twelve"]),
        (HALU, "Yes", UNPARSED, []),
        ("reply: last_line\nhallucinated: no\nfaithful: yes", "It names twelve.\nAnswer: No", HALLUCINATED, []),
        ("reply: last_line", "Yes.\nSo it is.", UNPARSED, []),
        (PATTERN, "I think it is not wrong.", FAITHFUL, []),
        (PATTERN, "It IS WRONG, not as if it is right.", HALLUCINATED, []),
        (PATTERN, "Who knows?", UNPARSED, []),
    ],
)
def test_a_header_says_how_to_read(header: str, reply: str, label: str, parts: list[str], tmp_path: Path) -> None:
    ask = "judgement" if header == HALU else "verdict"
    assert judged(tmp_path, header, reply, ask) == (label, parts)


def test_the_keys_of_a_label_set_give_the_parts_their_type(tmp_path: Path) -> None:
    header = "reply: json\nspans: [conflict, baseless]\nlabel_set: ragtruth"
    prompts = write_prompts(tmp_path, verdict=f"---\n{header}\n---\n{{response}}")
    engine = SetEngine(says=lambda prompt: ['{"conflict": ["twelve"], "baseless": ["countries."]}'])
    found = Judge.load(engine, prompts=prompts).judge("It flows through ten.", RESPONSE)
    assert [(span.label, span.relation, span.element) for span in found.spans] == [
        ("conflict", "contradiction", None),
        ("baseless", "unsupported_addition", "claim"),
    ]


@given(st.text(max_size=60))
def test_any_reply_in_another_form_is_unparsed(reply: str) -> None:
    header = PromptHeader(reply="json", verdict="found", spans=["parts"])
    template = PromptTemplate("{response}", header=header)
    engine = SetEngine(says=lambda prompt: [reply])
    assert Judge(engine, template=template).judge("a", RESPONSE).label == UNPARSED


WORDS = st.text(st.characters(exclude_categories=("Z", "C")), min_size=1, max_size=8)


@given(WORDS, WORDS)
def test_any_two_words_are_told_apart(first: str, second: str) -> None:
    assume(first.casefold() != second.casefold())
    assert read_first_word(f"**{first}**", (first, second)) == HALLUCINATED
    assert parse_steps(f"So.\n{first}", "", (first, second)).label == HALLUCINATED
    assert read_first_word(second, (first, second)) == FAITHFUL


def test_the_words_of_a_header_are_weighed(tmp_path: Path) -> None:
    text = "---\nreply: first_word\nhallucinated: no\nfaithful: yes\n---\nIs it supported? {response}"
    engine = SetEngine(weighs=lambda prompt: {"no": 0.8, "yes": 0.2})
    found = Judge.load(engine, prompts=write_prompts(tmp_path, verdict=text)).judge("a", RESPONSE)
    assert (found.label, found.probability, engine.asked) == (HALLUCINATED, pytest.approx(0.8), [])


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("", "the prompt is empty", "write its text, with {response}"),
        ("{response} {passage}", "no field {passage}", "knowledge"),
        (TEXT.replace("{response}", "{respons}"), "no field {respons}", "hint: did you mean response"),
        ("\udcff\udcfe{response}", "not UTF-8 text", ""),
        ("Is it wrong?", "lacks {response}", "write {response}"),
        ("---\nreply: json\n{response}", "the header does not end", "a second line of ---"),
        ("---\n---\n{response}", "the header has no keys", "reply: first_word, last_line, json or text"),
        ("---\nreply: [\n---\n{response}", "the header is not YAML", "write lines such as reply: json"),
        ("---\nreply: xml\n---\n{response}", "reply is 'xml'", "first_word, last_line, json, text"),
        ("---\nreply: json\nkey: a\n---\n{response}", "a header has no key 'key'", "verdict"),
        ("---\nreply: json\n---\n{response}", "reply: json without a key", "write verdict: KEY"),
        ("---\nreply: text\nhallucinated: a\n---\n{response}", "without a pattern for each label", "faithful: PATTERN"),
        ("---\nreply: text\nhallucinated: (a\nfaithful: b\n---\n{response}", "(a is not a regular expression", "put"),
        ("---\nhallucinated: a\n---\n{response}", "no form of the reply", "write reply:"),
        ("---\nreply: first_word\nhallucinated: no\n---\n{response}", "are both no", "name the other word too"),
        ("---\nreply: first_word\nspans: a\n---\n{response}", "are keys of JSON", "write reply: json"),
        ("---\nreply: json\nspans: a\nlabel_set: own\n---\n{response}", "label_set is 'own'", "use one of ragtruth, "),
        ("---\nreply: json\nspans: a\nlabel_set: fava\n---\n{response}", "no labels of fava", "span_types.toml"),
    ],
)  # fmt: skip
def test_a_prompt_file_that_cannot_be_used_is_named(text: str, problem: str, hint: str, tmp_path: Path) -> None:
    folder = write_prompts(tmp_path, verdict=text)
    with pytest.raises(UserError) as raised:
        read_prompts("verdict", folder)
    assert problem in str(raised.value) and hint in str(raised.value)
    assert str(tmp_path / "verdict.txt") in str(raised.value)


def test_a_folder_of_ones_own_has_what_is_asked(tmp_path: Path) -> None:
    folder = write_prompts(tmp_path, verdict=TEXT, system="You are strict.\n", reply="{history}")
    first, second = read_prompt("verdict", folder).messages(asked())
    assert (first.role, first.content, second.role) == (SYSTEM, "You are strict.", USER)
    with pytest.raises(UserError, match=r"no prompt judgment\n.*\n  hint: .*verdict"):
        read_prompt("judgment", folder)
    with pytest.raises(UserError, match=r"there is no prompt spans\n.*\n  hint: write spans\.txt"):
        read_prompts("spans", folder)
    write_prompts(tmp_path, comparative="---\nreply: json\n---\n{first} {second}")
    with pytest.raises(UserError, match="this prompt has no header"):
        Asker(SetEngine(), COMPARATIVE, prompts=folder)


def of_tasks(tasks: Mapping[str, str]) -> list[Example]:
    return [replace(example(response=response), id=response, meta={"task": task}) for response, task in tasks.items()]


def test_rows_of_a_task_are_asked_with_its_prompt(tmp_path: Path) -> None:
    folder = write_prompts(tmp_path, verdict__qa="Answer: {response}", verdict__data2txt="Overview: {response}")
    examples = of_tasks({"one": "QA", "two": "Data2txt"})
    prompts = read_prompts("verdict", folder)
    assert [prompts.messages(one)[-1].content for one in examples] == ["Answer: one", "Overview: two"]
    told = r"rows of the task 'summary'\n.*\n  hint: write verdict\.summary\.txt, or verdict"
    with pytest.raises(UserError, match=told):
        prompts.hides_knowledge([*examples, *of_tasks({"three": "Summary"})])
    with pytest.raises(UserError, match=r"rows without a task\n.*\n  hint: write verdict\.txt"):
        prompts.messages(example())
    prompts = read_prompts("verdict", write_prompts(tmp_path, verdict="{knowledge} {response}"))
    assert prompts.messages(replace(example(), knowledge="K"))[-1].content == f"K {example().response}"
    assert prompts.hides_knowledge([replace(one, knowledge="K") for one in examples])
    write_prompts(tmp_path, verdict__qa="---\nreply: last_line\n---\n{response}")
    with pytest.raises(UserError, match=r"verdict\.data2txt\.txt and verdict\.qa\.txt declare different replies"):
        read_prompts("verdict", folder)


def test_examples_next_to_a_prompt_are_taken_before_drawn_ones(tmp_path: Path) -> None:
    folder = write_prompts(tmp_path, verdict="{examples}\n\nNow: {response}", comparative="{first} or {second}?")
    write(tmp_path / "verdict.examples.jsonl", [{"response": f"r{number}", "reply": "Yes"} for number in range(3)])
    prompts = build_prompts(AskOptions(prompts=folder, examples=2))
    filled = prompts.messages(example())[-1].content
    assert "Example 2\n\nNow: r1\n\nYes" in filled and "r2" not in filled
    assert "Example" not in build_prompts(AskOptions(prompts=folder)).messages(example())[-1].content
    with pytest.raises(UserError, match=r"judge.examples=5, and here are 3"):
        build_prompts(AskOptions(prompts=folder, examples=5))
    write(tmp_path / "comparative.examples.jsonl", [{"first": "a", "second": "b", "reply": "2"}])
    shots = find_shots("comparative", AskOptions(prompts=folder, examples=1), COMPARATIVE.fields)
    engine = SetEngine(says=lambda prompt: ["1"])
    list(Asker(engine, COMPARATIVE, prompts=folder, shots=shots).answers([(example(), {"first": "c", "second": "d"})]))
    assert engine.asked == ["Example 1\n\na or b?\n\n2\n\nNow the one that you are to judge:\n\nc or d?"]


@pytest.mark.parametrize(
    ("header", "target"),
    [
        (JSON, '{"found": "yes", "parts": ["twelve"]}'),
        ("reply: last_line\nhallucinated: wrong\nfaithful: right", "wrong"),
    ],
)
def test_drawn_examples_have_the_declared_reply(header: str, target: str, tmp_path: Path) -> None:
    found = read_prompt("verdict", write_prompts(tmp_path, verdict=f"---\n{header}\n---\n{{response}}")).header
    [shot, other] = draw_shots(rows(), "verdict", 2, seed=0, header=found)
    assert shot.target == target and other.target in ('{"found": "no", "parts": []}', "right")
    with pytest.raises(UserError, match="reply: text"):
        text = replace(found, reply="text", hallucinated="a", faithful="b", verdict=None, spans=None)
        draw_shots(rows(), "verdict", 2, seed=0, header=text)


def test_our_prompts_of_corpora_are_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    prompts = read_prompts("spans", "ragtruth")
    for task, field in (("QA", "Answer"), ("Summary", "Summary"), ("Data2txt", "Overview")):
        [row] = of_tasks({RESPONSE: task})
        assert f"{field}:\n{RESPONSE}" in prompts.messages(row)[-1].content
        assert target_text(replace(row, label=HALLUCINATED, spans=()), "spans", prompts.each[0].header) == (
            '{"hallucination_detected": "yes", "hallucinated_span": []}'
        )
    for ask in ("verdict", "steps"):
        [message] = read_prompts(ask, "diahalu").messages(example(response=RESPONSE))
        assert f"Dialogue to check:\n{RESPONSE}" in message.content
    folder = write_prompts(tmp_path / "diahalu", verdict="Mine: {response}")
    assert read_prompts("verdict", "diahalu").each == read_prompts("verdict", folder).each, "a folder here comes first"
    with pytest.raises(UserError, match="there is no prompt spans"):
        read_prompts("spans", "diahalu")
