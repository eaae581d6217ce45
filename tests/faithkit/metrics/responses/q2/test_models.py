"""Q2's models give the same in any batch, and read long and empty texts."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import spacy
import torch
from spacy.language import Language
from spacy.tokens import Doc
from transformers import BertForQuestionAnswering, PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

from faithkit.errors import UserError
from faithkit.metrics.responses.official import official_answers, official_questions
from faithkit.metrics.responses.q2 import ExtractiveAnswers, Seq2SeqQuestions, SpacyCandidates
from tests.tiny import T5_SIZE, bert_config, write_tokenizer

TEMPLATE = "answer: {answer} context: {context}"
CONTEXTS = ["the river is long and the city is old", "music", "a king wrote a book of food and water for the people"]
QUESTIONS = ["the river", "what is it", "the book of the king was made from stone and water and food"]


@pytest.fixture(scope="module")
def asker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("t5")
    write_tokenizer(folder, "unigram")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    torch.manual_seed(1)
    config = T5Config(
        vocab_size=len(tokenizer),
        **T5_SIZE,
        initializer_factor=3.0,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.sep_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
    )
    model = T5ForConditionalGeneration(config).eval()
    return Seq2SeqQuestions(model, tokenizer, template=TEMPLATE, max_new_tokens=8)


@pytest.fixture(scope="module")
def answerer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("qa")
    write_tokenizer(folder)
    torch.manual_seed(3)
    config = bert_config(max_position_embeddings=64, initializer_range=0.5)
    return ExtractiveAnswers(BertForQuestionAnswering(config).eval(), PreTrainedTokenizerFast.from_pretrained(folder))


def test_questions_are_the_same_in_any_batch(asker):
    together = asker.questions(QUESTIONS, CONTEXTS)
    alone = [asker.questions([q], [c])[0] for q, c in zip(QUESTIONS, CONTEXTS, strict=True)]
    assert together == alone and all(len(found) == 5 for found in together)
    assert len({found[0] for found in together}) > 1, "this model tells its inputs apart"
    assert asker.questions([], []) == []


def test_models_are_loaded_in_the_precision_that_is_asked_for(asker, answerer, tmp_path):
    for name, each in (("t5", asker), ("qa", answerer)):
        each.model.save_pretrained(tmp_path / name)
        each.tokenizer.save_pretrained(tmp_path / name)
    for precision, dtype in (("32-true", torch.float32), ("bf16", torch.bfloat16), ("int8", torch.float32)):
        options = {"device": "cpu", "precision": precision}
        low = Seq2SeqQuestions.load(str(tmp_path / "t5"), template=TEMPLATE, **options)
        reader = ExtractiveAnswers.load(str(tmp_path / "qa"), **options)
        assert low.model.dtype == reader.model.dtype == dtype
        assert all(len(found) == 5 for found in low.questions(QUESTIONS, CONTEXTS))
        assert len(reader.answers(QUESTIONS, CONTEXTS)) == 3


def test_the_models_mark_before_a_question_goes(asker, monkeypatch):
    said = "question: Who is it? "
    monkeypatch.setattr(asker.tokenizer, "batch_decode", lambda beams, **options: [said] * len(beams))
    assert asker.questions(["a"], ["b"]) == [("Who is it?",) * 5]


def test_a_template_names_answer_and_context(asker):
    with pytest.raises(UserError, match="question_template"):
        Seq2SeqQuestions(asker.model, asker.tokenizer, template="answer: {answer}")


def test_answers_are_the_same_in_any_batch_and_texts_of_any_length_are_read(answerer):
    contexts = [*CONTEXTS, " ".join(CONTEXTS * 12)]
    questions = [*QUESTIONS, "who wrote it"]
    together = answerer.answers(questions, contexts)
    alone = [answerer.answers([q], [c])[0] for q, c in zip(questions, contexts, strict=True)]
    assert together == alone
    assert any(found is not None for found in together)
    assert all(found is None or found in context for found, context in zip(together, contexts, strict=True))


def test_official_answers_run_from_the_likeliest_start_to_the_likeliest_end(answerer):
    official, tokenizer = partial(official_answers, answerer), answerer.tokenizer
    together = official(QUESTIONS, CONTEXTS)
    assert together == [official([q], [c])[0] for q, c in zip(QUESTIONS, CONTEXTS, strict=True)]
    for question, context, found in zip(QUESTIONS, CONTEXTS, together, strict=True):
        inputs = tokenizer(question, context, return_tensors="pt")
        with torch.inference_mode():
            output = answerer.model(**inputs)
        begin, end = int(output.start_logits.argmax()), int(output.end_logits.argmax())
        words = " ".join(tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist()[begin : end + 1]))
        assert ("[CLS]" if found is None else found) == words.replace(" ##", "").strip()
    assert official([], []) == []


def test_an_official_answer_ends_with_its_likeliest_end(answerer, monkeypatch):
    def logits(rows, batch):
        sizes = [len(rows["input_ids"][i]) for i in batch]
        return tuple([np.eye(size)[place] for size in sizes] for place in (4, 5))

    monkeypatch.setattr(answerer, "logits", logits)  # [CLS] the river [SEP] the city is long [SEP]
    assert official_answers(answerer, ["the river"], ["the city is long"]) == ["the city"]


def test_official_questions_are_searched_as_the_scripts_do(asker, monkeypatch):
    asked, generate = [], asker.generate

    def recorded(rows, num_beams, **options):
        asked.append((num_beams, options))
        return generate(rows, num_beams, **options)

    monkeypatch.setattr(asker, "generate", recorded)
    official_questions(asker, QUESTIONS[:1], CONTEXTS[:1])
    assert asked == [(5, {"max_length": 128, "no_repeat_ngram_size": 3, "early_stopping": True})]


def test_empty_texts_have_no_answer_and_a_question_longer_than_the_model_is_cut(answerer):
    assert answerer.answers(["who is it"], [""]) == [None] and answerer.answers([], []) == []
    assert len(answerer.answers(["the river is long " * 60], [CONTEXTS[0]])) == 1


def test_an_answer_is_the_best_span_of_the_text_unless_no_answer_is_likelier(answerer, monkeypatch):
    monkeypatch.setattr(answerer, "max_answer", 2)
    said = answerer.answers(QUESTIONS, CONTEXTS)
    for question, context, answer in zip(QUESTIONS, CONTEXTS, said, strict=True):
        inputs = answerer.tokenizer(question, context, return_tensors="pt", return_offsets_mapping=True)
        offsets, inside = inputs.pop("offset_mapping")[0].tolist(), inputs.sequence_ids(0)
        with torch.inference_mode():
            output = answerer.model(**inputs)
        start, end = output.start_logits[0].double(), output.end_logits[0].double()
        places = [i for i, part in enumerate(inside) if part == 1]
        score, first, last = max((start[i] + end[j], i, j) for i in places for j in places if 0 <= j - i < 2)
        assert answer == (context[offsets[first][0] : offsets[last][1]] if score > start[0] + end[0] else None)


def mark_chunks(doc):
    """Without a parser: every word is its own noun chunk."""
    return Doc(
        doc.vocab,
        words=[token.text for token in doc],
        heads=list(range(len(doc))),
        deps=["ROOT"] * len(doc),
        pos=["PROPN" if token.text[0] in "FIyf" else "VERB" for token in doc],
        ents=["B-GPE" if token.text == "France" else "O" for token in doc],
    )


def test_candidates_are_entities_and_noun_chunks_each_once():
    pipeline = spacy.blank("en")
    Language.component("mark_chunks", func=mark_chunks)
    ruler: Any = pipeline.add_pipe("entity_ruler")
    ruler.add_patterns([{"label": "GPE", "pattern": "France"}])
    pipeline.add_pipe("mark_chunks", last=True)
    found = SpacyCandidates(pipeline).candidates(["I like France and you like france", ""])
    assert found == [("France",), ()]
