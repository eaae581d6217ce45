"""A tagger of token support: it trains nothing, marks what the knowledge supports least, and is what Python reads."""

from pathlib import Path

import numpy as np
import pytest

from critic import Tagger
from critic.export import export
from critic.runtime import Request
from critic.token_support import SCALE, TokenSupport
from data_modules.build import build_source
from data_modules.encoding.tokens import load_tokenizer, tokenize
from data_modules.reading.dataset import read_examples
from data_modules.reading.rows import ReadReport
from faithkit.errors import UserError
from faithkit.files.jsonl import read_predictions
from tests.running import SMALL_TAGGER, train_here

SUPPORT = ("model.token_support=true", "model.typed=false", "model.support_weight=0")
KNOWLEDGE = "The river is long. The king lives in the city."


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, tiny_bert: Path) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "support"
    train_here(f"model.weights={tiny_bert}", f"run_dir={folder}", "logger=none", *SMALL_TAGGER, *SUPPORT)
    return folder


@pytest.fixture(scope="module")
def tagger(run: Path) -> Tagger:
    return Tagger.load(str(run))


def test_a_tokens_log_odds_are_what_its_support_leaves(tagger: Tagger, tiny_bert: Path) -> None:
    response, tokenizer = "the king plays music", load_tokenizer(str(tiny_bert))
    found = tagger.answers([Request(KNOWLEDGE, "", response)]).odds
    support = TokenSupport(tagger.model, tokenizer, batch_tokens=64)
    [wanted] = support.supports(tokenize(tokenizer, [KNOWLEDGE]), tokenize(tokenizer, [response]))
    np.testing.assert_allclose(found, SCALE * (0.5 - wanted.numpy()), atol=1e-5)
    copied = tagger.answers([Request(response, "", response)]).odds
    np.testing.assert_allclose(copied, -SCALE / 2, atol=1e-4)  # a cosine of 1 each


def test_a_response_gets_the_same_alone_in_a_list_and_in_the_written_predictions(tagger: Tagger, run: Path) -> None:
    (file,) = (run / "predictions").glob("*.jsonl")
    written = read_predictions(file)
    rows = list(read_examples(build_source("ragtruth", "embedded"), "test", ReadReport(), 12))
    for row, one in zip(rows, tagger.predict_examples(rows), strict=True):
        [alone] = tagger.predict_examples([row])
        for other in (alone, written[row.id]):
            assert other.score == pytest.approx(one.score, abs=1e-5) and other.label == one.label
            assert [span.start for span in other.spans] == [span.start for span in one.spans]


def test_an_exported_folder_gives_the_same_and_a_graph_is_refused(tagger: Tagger, run: Path, tmp_path: Path) -> None:
    export(str(run), str(tmp_path / "folder"))
    again = Tagger.load(str(tmp_path / "folder"))
    assert again.token_support
    first, second = (one.predict(KNOWLEDGE, "nine dogs live there") for one in (tagger, again))
    assert second.score == pytest.approx(first.score, abs=1e-6) and second.label == first.label
    with pytest.raises(UserError, match="ONNX graph lacks"):
        export(str(run), str(tmp_path / "graph"), graph=True)


def test_a_response_is_called_where_its_likeliest_token_reaches_the_threshold_of_the_spans(tagger: Tagger) -> None:
    assert tagger.calibration.response_weights == ()
    assert tagger.calibration.response_threshold == tagger.calibration.char_threshold
    found = tagger.predict([KNOWLEDGE] * 3, ["the king lives in the city", "nine dogs", "it plays music"])
    for one in found:
        called = one.score >= tagger.calibration.char_threshold
        assert (one.label == "hallucinated") == called == bool(one.spans)
