"""Detectors of others load by name, from their original layout or a server, and a mistake says what to type."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as t

from faithkit.detector import kind_in_name
from faithkit.errors import UserError
from faithkit.inference.text import Reply, Request
from faithkit.published.known_detectors import known_detectors
from faithkit.records import Example, Turn, number_passages, split_passages
from faithkit_workflows.detectors.known import PromptedTagger
from faithkit_workflows.detectors.loading import load_detector
from speed.known_speed import write_known
from tests.faithkit.inference.server import ChatServer
from tests.running import ROOT
from tests.tiny import words, write_language_model

PASSAGES = ["The old mill stands by the river.", "It was built in 1820."]
TEXTS = [*PASSAGES, "Who built the mill in 1820? The brothers did.", words(200)]
TEMPLATE = (
    "{% for m in messages %}<s>{{ m['role'] }}: {{ m['content'] }}</s>{% endfor %}"
    "{% if documents %}{{ guardian_config['criteria_id'] }} {{ think }} {{ documents[0]['text'] }}{% endif %}"
)


def example(response: str, question: str = "", knowledge: str = " ".join(PASSAGES)) -> Example:
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


def test_lettucedetect_reads_its_prompt_and_a_response_takes_its_highest_token(root: Path) -> None:
    folder = write_known(root, "lettucedetect-base", TEXTS, hidden_size=32)
    detector = load(f"lettucedetect-base:{folder}")
    assert isinstance(detector, PromptedTagger) and detector.numbers_passages
    row = example("The sisters built it in 1920.", "Who built the mill?", number_passages(PASSAGES))
    prompt = (
        "Briefly answer the following question:\nWho built the mill?\nBear in mind that your response should be "
        "strictly based on the following 2 passages:\npassage 1: The old mill stands by the river.\npassage 2: It was "
        "built in 1820.\nIn case the passages do not contain the necessary information to answer the question, please "
        'reply with: "Unable to answer based on given passages."\noutput:'
    )
    assert detector.prompt(row) == prompt
    tokenizer = t.AutoTokenizer.from_pretrained(folder)
    model = t.AutoModelForTokenClassification.from_pretrained(folder)
    inputs = tokenizer(prompt, row.response, return_tensors="pt", return_token_type_ids=False)
    count = len(tokenizer(row.response, add_special_tokens=False)["input_ids"])
    with torch.inference_mode():
        chance = model(**inputs).logits[0].softmax(-1)[-count - 1 : -1, 1]
    [found] = detector.predict_examples([row])
    assert found.score == pytest.approx(float(chance.max()), abs=1e-5)
    summary = detector.prompt(example("It is old."))
    assert summary == f"Summarize the following text:\npassage 1: {' '.join(PASSAGES)}\noutput:"


@pytest.mark.parametrize("name", ["nli-deberta-v3-base", "roberta-large-mnli"])
def test_an_nli_model_counts_all_but_entailment_as_hallucinated(name: str, root: Path) -> None:
    folder = write_known(root, name, TEXTS, hidden_size=32)
    [found] = load(f"{name}:{folder}").predict_examples([example("It was built.")])
    tokenizer = t.AutoTokenizer.from_pretrained(folder)
    model = t.AutoModelForSequenceClassification.from_pretrained(folder)
    with torch.inference_mode():
        logits = model(**tokenizer(" ".join(PASSAGES), "It was built.", return_tensors="pt")).logits[0]
    entailment = next(number for number, label in model.config.id2label.items() if label.lower() == "entailment")
    assert found.score == pytest.approx(1 - float(logits.softmax(-1)[entailment]), abs=1e-5)


def test_bespoke_minicheck_weighs_yes_and_no_for_each_sentence_of_a_claim() -> None:
    def answer(messages: list[dict[str, str]], seed: int | None, sample: int) -> str:
        return "No" if "1920" in messages[-1]["content"] else "Yes"

    with ChatServer(answer=answer, tells={"Yes": 0.7, "No": 0.2}) as server:
        detector = load(f"bespoke-minicheck-7b:{server.url}#small")
        [found] = detector.predict_examples([example("It stands by the river. It is from 1820.")])
        assert sorted(server.contents) == [
            f"Document: {' '.join(PASSAGES)}\nClaim: {claim}"
            for claim in ("It is from 1820.", "It stands by the river.")
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


def test_a_server_that_is_not_vllm_cannot_read_documents() -> None:
    with ChatServer() as server, pytest.raises(UserError, match="vLLM"):
        list(load(f"granite-guardian:{server.url}#small").predict_examples([example("It is old.")]))


def test_a_vllm_server_gets_the_variables_of_the_template() -> None:
    with ChatServer(owner="vllm", answer=lambda *_: "<score> yes </score>") as server:
        [found] = load(f"granite-guardian:{server.url}#small").predict_examples([example("It is old.")])
        sent = server.asked[0]["chat_template_kwargs"]
    assert found.label == "hallucinated" and sent["documents"] == [{"doc_id": "0", "text": " ".join(PASSAGES)}]


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
def test_a_mistake_says_what_to_type(
    checkpoint: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError) as caught:
        load(checkpoint.format(empty=tmp_path))
    assert words.format(empty=tmp_path) in str(caught.value)


def test_every_declaration_is_complete() -> None:
    page = (ROOT / "docs" / "start" / "models.md").read_text(encoding="utf-8")
    for name, known in known_detectors().items():
        assert kind_in_name(name) is not None and known.figure and known.source and known.rule
        row = next(line for line in page.splitlines() if f"`{name}`" in line)
        assert known.licence in row and known.parameters in row and known.figure.split(",")[0].split(";")[0] in row


def test_numbered_passages_are_found_again() -> None:
    assert split_passages(number_passages(PASSAGES)) == PASSAGES
    for text in ("", "It is red.", "passage 2: It is red.", "See\n\npassage 1: It is red."):
        assert split_passages(text) == [text]
