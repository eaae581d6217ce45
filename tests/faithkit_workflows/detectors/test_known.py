"""Detectors of others load by name, from their original layout or a server, and a mistake says what to type."""

import json
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as t
from hypothesis import given
from hypothesis import strategies as st

from faithkit.detector import kind_in_name
from faithkit.errors import UserError
from faithkit.inference.text import Reply, Request
from faithkit.published.known_detectors import SpanLister, known_detectors
from faithkit.records import Example, Turn, number_passages, split_passages
from faithkit_workflows.detectors.known import PromptedTagger
from faithkit_workflows.detectors.loading import load_detector
from faithkit_workflows.detectors.span_judge import find_system_prompt, locate_in_order, read_span_list, write_prompt
from speed.known_speed import write_known
from tests.faithkit.inference.server import ChatServer
from tests.running import ROOT
from tests.tiny import words, write_language_model

LETTUCE = os.environ.get("FAITHKIT_LETTUCE_PYTHON")  # of an environment with the original package
PASSAGES = ["The old mill stands by the river.", "It was built in 1820."]
SOURCE = " ".join(PASSAGES)
TEXTS = [*PASSAGES, "Who built the mill in 1820? The brothers did.", words(200)]
TEMPLATE = (
    "{% for m in messages %}<s>{{ m['role'] }}: {{ m['content'] }}</s>{% endfor %}"
    "{% if documents %}{{ guardian_config['criteria_id'] }} {{ think }} {{ documents[0]['text'] }}{% endif %}"
)


def example(response: str, question: str = "", knowledge: str = SOURCE) -> Example:
    history = (Turn(speaker="user", text=question),) if question else ()
    return Example(id="1", source="t", split="all", group="1", knowledge=knowledge, history=history, response=response)


def load(checkpoint: str, **options: Any) -> Any:
    return load_detector(checkpoint, precision="32-true", batch_tokens=None, **options)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("known")


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama whose template reads documents."""
    folder = write_language_model(tmp_path_factory.mktemp("chat") / "llama", "llama")
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": TEMPLATE}))
    return folder


def highest_chance(folder: Path, prompt: str, response: str) -> float:
    """P(hallucinated) of the least supported token, as transformers computes it."""
    tokenizer = t.AutoTokenizer.from_pretrained(folder)
    model = t.AutoModelForTokenClassification.from_pretrained(folder)
    inputs = tokenizer(prompt, response, return_tensors="pt", return_token_type_ids=False)
    count = len(tokenizer(response, add_special_tokens=False)["input_ids"])
    with torch.inference_mode():
        return float(model(**inputs).logits[0].softmax(-1)[-count - 1 : -1, 1].max())


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Prompts as the original package has them, in an installed package that cannot be imported."""
    folder = tmp_path / "site" / "lettucedetect"
    (folder / "prompts").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('imported')")
    (folder / "prompts" / "qa_prompt_de.txt").write_text(
        "Frage: ${question}\n${num_passages} Texte:\n${context}\nAntwort:"
    )
    (folder / "prompts" / "summary_prompt_de.txt").write_text("Kurz gesagt:\n${text}\n")
    (folder / "prompts" / "generative.py").write_text("SYSTEM_BASE = 'List what the context does not support.'")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return folder


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faithkit_workflows.detectors.span_judge.PACKAGE", "no_such_package")


ANSWERING = (
    "Briefly answer the following question:\nWho built the mill?\nBear in mind that your response should be "
    "strictly based on the following 2 passages:\npassage 1: The old mill stands by the river.\npassage 2: It was "
    "built in 1820.\nIn case the passages do not contain the necessary information to answer the question, please "
    'reply with: "Unable to answer based on given passages."\noutput:'
)


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("name", "languages", "prompt", "prompt_without_question"),
    [
        ("lettucedetect-base", {"en"}, ANSWERING, f"Summarize the following text:\npassage 1: {SOURCE}\noutput:"),
        (
            "lettucedect-v2-mmbert-base",
            {"en", "fi", "zh"},
            f"User request: Who built the mill?\n\n{PASSAGES[0]}\n\n{PASSAGES[1]}",
            SOURCE,
        ),
        (
            "lettucedect-210m-de",
            {"de"},
            f"Frage: Who built the mill?\n2 Texte:\nPassage 1: {PASSAGES[0]}\nPassage 2: {PASSAGES[1]}\nAntwort:",
            f"Kurz gesagt:\nPassage 1: {SOURCE}\n",
        ),
    ],
)
def test_a_tagger_reads_its_prompt_and_a_response_takes_its_highest_token(
    name: str, languages: set[str], prompt: str, prompt_without_question: str, root: Path
) -> None:
    folder = write_known(root, name, TEXTS, hidden_size=32)
    detector = load(f"{name}:{folder}")
    assert languages <= set(detector.languages) and isinstance(detector, PromptedTagger) and detector.numbers_passages
    rows = [
        example(" The sisters built it  in 1920 🌊.", "Who built the mill?", number_passages(PASSAGES)),
        example("It is old."),
    ]
    prompts = [prompt, prompt_without_question]
    assert [write_prompt(detector.known, row) for row in rows] == prompts
    expected = [highest_chance(folder, text, row.response) for text, row in zip(prompts, rows, strict=True)]
    assert [one.score for one in detector.predict_examples(rows)] == pytest.approx(expected, abs=1e-5)


@pytest.mark.usefixtures("no_package")
def test_prompts_that_are_missing_are_named_and_a_folder_may_have_them(root: Path) -> None:
    folder = write_known(root, "lettucedect-610m-fr", TEXTS, hidden_size=32)
    with pytest.raises(
        UserError, match=r"pip install --no-deps lettucedetect.*FOLDER with qa_prompt_fr.txt and summary_pro"
    ):
        load(f"lettucedect-610m-fr:{folder}")
    (folder / "prompts").mkdir()
    for name in ("qa", "summary"):
        (folder / "prompts" / f"{name}_prompt_fr.txt").write_text("${context}${text}")
    assert write_prompt(load(f"lettucedect-610m-fr:{folder}").known, example("Oui.")) == f"passage 1: {SOURCE}" * 2
    with pytest.raises(UserError, match=r"system prompt of its authors.*\n.*HF_HOME to a cache with the card"):
        load("lettucedect-v2-qwen-2b:http://localhost:1/v1")


def span_list(*items: tuple[str, str, str]) -> str:
    names = ("text", "category", "subcategory")
    return json.dumps({"hallucinated_spans": [dict(zip(names, item, strict=True)) for item in items]})


def test_a_language_model_lists_spans_with_types_in_the_order_of_the_response(package: Path) -> None:
    replies = {
        "It has 10 rooms and 10 pools.": "```json\n"
        + span_list(("It has 10 rooms", "contradiction", "numerical"), ("10", "fabricated_reference", "unspecified"))
        + "\n```",
        "It has twelve rooms.": '{"hallucinated_spans": []} That is all.',
        "It has a sauna.": span_list(("a Sauna", "invention", "</script>")),
        "It is old.": '{"hallucinated_spans": [{"text": "ol',
        "It is new.": '{"hallucinated_spans": ["new"]}',
    }

    def answer(messages: list[dict[str, str]], seed: int | None, sample: int) -> str:
        return replies[messages[-1]["content"].rpartition("Answer to verify:\n")[2]]

    with ChatServer(answer=answer) as server:
        detector = load(f"lettucedect-v2-qwen-2b:{server.url}#small")
        rows = [example(text, "What has it?", number_passages(PASSAGES)) for text in replies]
        found = list(detector.predict_examples(rows))
        asked = next(one["messages"] for one in server.asked if "10 pools" in one["messages"][-1]["content"])
    assert [one.label for one in found] == ["hallucinated", "faithful", "hallucinated", "unparsed", "unparsed"]
    marked = [(span.start, span.text, span.label) for span in found[0].spans]
    assert marked == [(0, "It has 10 rooms", "contradiction/numerical"), (20, "10", "fabricated_reference")]
    assert detector.num_unlocated == 1 and found[2].spans == () and found[0].score is None
    assert asked[0] == {"role": "system", "content": "List what the context does not support."}
    context = "\n\n".join(PASSAGES)
    assert asked[1]["content"] == f"User request: What has it?\n\n{context}\n\nAnswer to verify:\n{rows[0].response}"


@pytest.mark.usefixtures("no_package")
def test_the_system_prompt_is_found_in_a_copy_of_the_model_card(tmp_path: Path) -> None:
    known = known_detectors()["lettucedect-v2-qwen-2b"]
    assert isinstance(known, SpanLister)
    card = 'It reads:\n```python\nimport json\n\nSYSTEM = """List them.\n- "a": b\n"""\n\nSYSTEM = "..."\n```\n'
    (tmp_path / "README.md").write_text(card)
    assert find_system_prompt(known, str(tmp_path)) == 'List them.\n- "a": b\n'


@given(
    st.text()
    | st.builds(lambda texts: span_list(*((text, "contradiction", "value") for text in texts)), st.lists(st.text()))
)
def test_any_reply_is_a_list_or_malformed(reply: str) -> None:
    items = read_span_list(reply)
    assert items is None or all(label in ("contradiction/value", "hallucination") for _, label in items)


@given(st.text(alphabet="ab 🌊"), st.lists(st.text(alphabet="ab 🌊", max_size=3)))
def test_listed_texts_mark_themselves_once_or_are_counted(response: str, texts: list[str]) -> None:
    spans, num_missed = locate_in_order([(text, "x") for text in texts], response)
    assert len(spans) + num_missed == len(texts)
    assert all(response[span.start : span.end] == span.text for span in spans)
    assert all(one.end <= other.start for one, other in pairwise(spans))


@pytest.mark.skipif(not LETTUCE, reason="FAITHKIT_LETTUCE_PYTHON is not set")
def test_spans_of_a_reply_are_those_of_the_original_package() -> None:
    """The original takes the first free place of a text, so replies here list texts in the order of the response."""
    response = "It has 10 rooms, 10 pools and a sauna; it opens in June, in June."
    listed = [["It has 10", "10"], ["a sauna", "in June", "in June"], ["a bar"], [], ["opens", "e"]]
    replies = [span_list(*((text, "contradiction", "value") for text in texts)) for texts in listed]
    program = (
        "import json, sys; from lettucedetect.prompts.generative import parse_spans, spans_to_offsets\n"
        "response, replies = json.load(sys.stdin)\n"
        "print(json.dumps([spans_to_offsets(response, parse_spans(reply)) for reply in replies]))"
    )
    command = [LETTUCE or "", "-c", program]
    ran = subprocess.run(command, input=json.dumps([response, replies]), capture_output=True, text=True, check=True)
    theirs = [[(one["start"], one["end"]) for one in spans] for spans in json.loads(ran.stdout.splitlines()[-1])]
    ours = [locate_in_order(read_span_list(reply) or (), response)[0] for reply in replies]
    assert [[(span.start, span.end) for span in spans] for spans in ours] == theirs


@pytest.mark.parametrize("name", ["nli-deberta-v3-base", "roberta-large-mnli"])
def test_an_nli_model_counts_all_but_entailment_as_hallucinated(name: str, root: Path) -> None:
    folder = write_known(root, name, TEXTS, hidden_size=32)
    [found] = load(f"{name}:{folder}").predict_examples([example("It was built.")])
    tokenizer = t.AutoTokenizer.from_pretrained(folder)
    model = t.AutoModelForSequenceClassification.from_pretrained(folder)
    with torch.inference_mode():
        logits = model(**tokenizer(SOURCE, "It was built.", return_tensors="pt")).logits[0]
    entailment = next(number for number, label in model.config.id2label.items() if label.lower() == "entailment")
    assert found.score == pytest.approx(1 - float(logits.softmax(-1)[entailment]), abs=1e-5)


def test_bespoke_minicheck_weighs_yes_and_no_for_each_sentence_of_a_claim() -> None:
    def answer(messages: list[dict[str, str]], seed: int | None, sample: int) -> str:
        return "No" if "1920" in messages[-1]["content"] else "Yes"

    with ChatServer(answer=answer, tells={"Yes": 0.7, "No": 0.2}) as server:
        detector = load(f"bespoke-minicheck-7b:{server.url}#small")
        [found] = detector.predict_examples([example("It stands by the river. It is from 1820.")])
        assert sorted(server.contents) == [
            f"Document: {SOURCE}\nClaim: {claim}" for claim in ("It is from 1820.", "It stands by the river.")
        ]
        assert server.asked[0]["messages"][0]["content"].startswith("Determine whether the provided claim")
    assert found.label == "faithful" and found.score == pytest.approx(0.2 / 0.9, abs=1e-6)


def test_lynx_reads_question_document_and_answer_and_its_score_is_parsed() -> None:
    def answer(messages: list[dict[str, str]], seed: int | None, sample: int) -> str:
        verdict = "FAIL" if "1920" in messages[-1]["content"] else "PASS"
        return json.dumps({"REASONING": ["It does not PASS by itself."], "SCORE": verdict})

    with ChatServer(answer=answer) as server:
        detector = load(f"lynx-8b:{server.url}#small")
        rows = [example(text, "Who built it?") for text in ("In 1820.", "In 1920.")]
        assert [one.label for one in detector.predict_examples(rows)] == ["faithful", "hallucinated"]
        assert "Who built it?" in server.contents[0] and '{"REASONING": <' in server.contents[0]


class FixedReplies:
    """An engine that gives the same replies, and keeps the requests."""

    def __init__(self, *texts: str):
        self.texts, self.requests = texts, list[Request]()

    def generate(self, requests: Sequence[Request], decoding: Any) -> Iterator[Reply]:
        self.requests = list(requests)
        yield from (Reply(id=one.id, texts=(text,)) for one, text in zip(requests, self.texts, strict=True))


def test_granite_guardian_gets_documents_and_criterion_as_variables_of_its_template(chat: Path) -> None:
    detector = load(f"granite-guardian:{chat}")
    [found] = detector.predict_examples([example("the king")])
    assert found.label in ("hallucinated", "faithful", "unparsed")
    tokens = detector.engine.tokens
    detector.engine = FixedReplies("<score> yes </score>", "<score>no</score>", "perhaps")
    judged = list(detector.predict_examples([example("the king plays </s> music")] * 3))
    assert [one.label for one in judged] == ["hallucinated", "faithful", "unparsed"]
    request = detector.engine.requests[0]
    [ids] = tokens.prompts([request.messages], [request.template])
    text = tokens.tokenizer.decode(ids)
    assert "groundedness False The old mill" in text.replace("  ", " ")
    assert list(ids).count(tokens.tokenizer.convert_tokens_to_ids("</s>")) == 1


def test_a_vllm_server_gets_the_variables_of_the_template_and_others_cannot_read_documents() -> None:
    with ChatServer(owner="vllm", answer=lambda *_: "<score> yes </score>") as server:
        [found] = load(f"granite-guardian:{server.url}#small").predict_examples([example("It is old.")])
        sent = server.asked[0]["chat_template_kwargs"]
    assert found.label == "hallucinated" and sent["documents"] == [{"doc_id": "0", "text": SOURCE}]
    with ChatServer() as server, pytest.raises(UserError, match="vLLM"):
        list(load(f"granite-guardian:{server.url}#small").predict_examples([example("It is old.")]))


@pytest.mark.parametrize(
    ("checkpoint", "words"),
    [
        ("minicheck-roberta-large:/no/such", "FOLDER with a copy of lytang/MiniCheck-RoBERTa-Large"),
        ("minicheck-roberta-large", "give checkpoint=minicheck-roberta-large:FOLDER"),
        ("hhem-2.1-open:{empty}", "give {empty}/base with a copy of it"),
        ("bespoke-minicheck-7b", "checkpoint=bespoke-minicheck-7b:http://HOST:8000/v1"),
        ("hhem-2.1-open:http://localhost:1/v1", "checkpoint=hhem-2.1-open:FOLDER"),
        ("minichek-roberta-large", "did you mean minicheck-roberta-large"),
    ],
)
def test_a_mistake_says_what_to_type(checkpoint: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        load(checkpoint.format(empty=tmp_path))
    assert words.format(empty=tmp_path) in str(caught.value)


def test_every_declaration_is_complete() -> None:
    page = (ROOT / "docs" / "start" / "models.md").read_text(encoding="utf-8")
    for name, known in known_detectors().items():
        assert kind_in_name(name) is not None and known.figure and known.source and known.rule
        row = next(line for line in page.splitlines() if f"`{name}`" in line)
        numbers = re.findall(r"\d+\.\d+", known.figure.split(",")[0].split(";")[0])
        assert known.licence in row and known.parameters in row and all(number in row for number in numbers)


def test_numbered_passages_are_found_again() -> None:
    assert split_passages(number_passages(PASSAGES)) == PASSAGES
    for text in ("", "It is red.", "passage 2: It is red.", "See\n\npassage 1: It is red."):
        assert split_passages(text) == [text]
