"""A tagger that marks something: random weights, read with a threshold that some of its tokens reach."""

from collections.abc import Callable
from pathlib import Path

import pytest

from critic import Tagger
from critic.tagger.span_calibration import SpanCalibration
from tests.model_folders import make_foreign

READING = SpanCalibration(
    **{"slope": 0.9, "bias": -1.7, "char_threshold": 0.6, "merge_gap": 2, "min_length": 2, "aim": "f1"},
    **{"response_weights": (0.5, 0.5, 0.0, 0.0, -2.0), "response_threshold": 0.7},
)
Write = Callable[..., Path]


@pytest.fixture(scope="session")
def write_tagger(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Write:
    """Writes a tagger's folder of random weights, with a sidecar or without."""

    def write(*, typed: bool = True, sidecar: bool = True, labels: tuple[str, ...] = ()) -> Path:
        from critic.tagger.span_calibration import Settings, tagger_labels
        from critic.weights import load_classifier
        from data_modules.encoding.tokens import load_tokenizer
        from faithkit.files.model_folder import write_folder

        folder, labels = tmp_path_factory.mktemp("tagger"), labels or tagger_labels(typed)
        settings = Settings(labels=labels, max_length=96, calibration=READING, origin={})
        model = load_classifier(str(tiny_bert), labels, of_tokens=True, seed=5)
        model.classifier.weight.data *= 20
        write_folder(folder, model, load_tokenizer(str(tiny_bert)), settings.to_sidecar())
        if not sidecar:
            make_foreign(folder)
        return folder

    return write


@pytest.fixture(scope="session")
def tagger_folder(write_tagger: Write) -> Path:
    """A typed tagger of ours."""
    return write_tagger()


@pytest.fixture(scope="session")
def tagger(tagger_folder: Path) -> Tagger:
    """The typed tagger, loaded."""
    return Tagger.load(str(tagger_folder))
