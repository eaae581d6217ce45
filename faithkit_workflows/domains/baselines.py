"""Cheap baselines of a domain, fitted on other domains, and the features that they read: counts, models' scores.

Features of a model are kept in the run's folder, so that a resumed run does not compute them again. The model is
identified by its content, because other weights may have been saved at the same path.

`measure_response_only` measures how well labels can be predicted without the knowledge, by folds of groups. If the
response alone (its length, punctuation, words or author) predicts the labels, the test set does not show whether a
detector compares it with the knowledge. Each figure is the AUROC of a logistic regression on one kind of features,
scored on groups that it was not trained on. `knowledge length` uses the knowledge's length and no response.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_modules.reading.exclude import Excluded
from faithkit.baselines.simple_detectors import Baseline, folds_by_group
from faithkit.baselines.word_features import (
    FEATURES,
    FIRST_PERSON,
    MARKS,
    NEGATIONS,
    WORD_EVIDENCE,
    Values,
    compress_counts,
    count_features,
    unsupported_grams,
)
from faithkit.calibration import apply_temperature, predict_by_threshold
from faithkit.detector import ENTAILMENT
from faithkit.files.atomic import atomic_file, hash_files
from faithkit.files.model_folder import CARD, find_folder
from faithkit.metrics.classification import classification_metrics, join_outcomes
from faithkit.records import HALLUCINATED, Example, Prediction
from faithkit.statistics.metric import Metric
from faithkit.weights.resolve import LOCAL, is_hub_name, resolve
from faithkit.words import unicode_words
from faithkit_workflows.domains.domain_rows import DomainRows, Rows, concatenate
from faithkit_workflows.settings.benchmark_blocks import DEV

LENGTH, PUNCTUATION, WORDS, AUTHOR, KNOWLEDGE, ALL = KINDS = (
    "length",
    "marks",
    "words",
    "author",
    "knowledge length",
    "response, all",
)
MIN_ROWS = 3  # rarer words are ignored
Counts = dict[str, float]


def measure_response_only(examples: Sequence[Example], *, num_resamples: int = 1000) -> dict[str, Metric]:
    """Computes the AUROC of each kind of features, with its interval; kinds that the set does not have are left out."""
    counts: list[dict[str, Counts]] = []  # of each row, by kind
    for example in examples:
        text, words = example.response, unicode_words(example.response)
        length = {"#words": len(words), "#log words": np.log1p(len(words)), "#per word": len(text) / max(1, len(words))}
        marks = {f"#{mark}": float(text.count(mark)) for mark in MARKS} | {
            "#capitals": sum(character.isupper() for character in text) / max(1, len(text)),
            "#digits": sum(character.isdigit() for character in text) / max(1, len(text)),
            "#starts lower": float(text[:1].islower()),
            "#ends with a mark": float(text.rstrip()[-1:] in MARKS and bool(text.strip())),
            "#negations": sum(word in NEGATIONS for word in words),
            "#first person": sum(word in FIRST_PERSON for word in words),
        }
        grams = dict.fromkeys([*words, *(" ".join(pair) for pair in pairwise(words))], 1.0)
        author = next((str(name) for key in ("model", "model_name") if (name := example.meta.get(key)) is not None), "")
        of_row: dict[str, Counts] = {
            LENGTH: length,
            PUNCTUATION: marks,
            WORDS: grams,
            AUTHOR: {f"by {author}": 1.0},
            KNOWLEDGE: {"knowledge": len(unicode_words(example.knowledge))},
            ALL: length | marks | grams,
        }
        counts.append(of_row)
    found = {}
    for kind in KINDS:
        of_kind = [one[kind] for one in counts]
        if kind == AUTHOR and len({name for one in of_kind for name in one}) < 2:
            continue
        if metric := _measure(examples, of_kind, num_resamples):
            found[kind] = metric
    return found


def _measure(examples: Sequence[Example], counts: Sequence[Counts], num_resamples: int) -> Metric | None:
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MaxAbsScaler

    by_id = {example.id: of_row for example, of_row in zip(examples, counts, strict=True)}
    predictions: dict[str, Prediction] = {}
    for others, held_out in folds_by_group(examples):
        gold = np.array([example.label == HALLUCINATED for example in others])
        if not 0 < gold.sum() < len(gold):
            return None
        of_others = [by_id[example.id] for example in others]
        num_rows = Counter(name for of_row in of_others for name in of_row)
        # "#" is a constant feature, because there may be no other.
        kept = [{"#": 1.0} | {name: n for name, n in row.items() if num_rows[name] >= MIN_ROWS} for row in of_others]
        model = make_pipeline(DictVectorizer(), MaxAbsScaler(), LogisticRegression(C=1.0, max_iter=500))
        model.fit(kept, gold)
        # The training rows' mean is subtracted: a fold with more rows of a class leaves fewer of it for training, so
        # raw log-odds would order the folds the wrong way round.
        mean = model.decision_function(of_others).mean()
        scores = apply_temperature(model.decision_function([by_id[example.id] for example in held_out]) - mean, 1.0)
        predictions |= predict_by_threshold((example.id for example in held_out), scores, 0.5)
    if len(predictions) < len(examples):
        return None
    outcomes = join_outcomes(examples, predictions)
    return classification_metrics(outcomes, num_resamples=num_resamples).metrics.get("auroc")


GRAMS, COSINE, NLI = "unknown 4-grams", "cosine", "not entailed"
PIECE_WORDS = 100  # long knowledge is compared piece by piece, and the most similar piece counts
BATCH_SIZE = 32
MAX_TOKENS = 160


class Features:
    """Computes features, and keeps those of models in a folder.

    Args:
        folder: The folder for kept features.
        encoder: Weights of an encoder; None leaves its cosine out.
    """

    def __init__(self, folder: Path, *, encoder: str | None = None):
        self.folder, self.encoder = folder, encoder
        self._model_key = cache(model_key)  # the files of a model are hashed once for all domains

    def compute(self, name: str, examples: Sequence[Example], nli: str | None) -> Values:
        """Computes the features of examples [examples, features].

        Args:
            name: A name for the examples in file names.
            nli: An NLI model or a critic; None leaves it out.
        """
        knowledge, responses = [e.knowledge for e in examples], [e.response for e in examples]
        blocks = [count_features(knowledge, responses)]
        grams = [unsupported_grams(*pair) for pair in zip(knowledge, responses, strict=True)]
        blocks.append(np.array(grams, np.float64)[:, None])
        if encoder := self.encoder:
            cosines = self._load_or(name, examples, encoder, lambda: compute_cosines(encoder, knowledge, responses))
            blocks.append(cosines[:, None])
        if nli:
            from faithkit_workflows.detectors.entailment import load_entailment

            scores = self._load_or(
                name,
                examples,
                nli,
                lambda: 1 - load_entailment(nli).entailment(knowledge, responses)[:, ENTAILMENT],
            )
            blocks.append(scores[:, None])
        return np.concatenate(blocks, axis=1)

    def _load_or(self, name: str, examples: Sequence[Example], model: str, compute: Callable[[], Values]) -> Values:
        digest = hashlib.blake2b(self._model_key(model).encode(), digest_size=8)
        for example in examples:
            digest.update("\0".join((example.id, example.knowledge, example.response)).encode(errors="surrogatepass"))
        path = self.folder / f"{name}-{digest.hexdigest()}.npy"
        if path.exists():
            kept: Values = np.load(path, allow_pickle=False)
            return kept
        self.folder.mkdir(parents=True, exist_ok=True)
        values = compute()
        with atomic_file(path) as file:
            np.save(file, values, allow_pickle=False)
        return values


def model_key(name: str) -> str:
    """Hashes the files of a model, or of a run's model; a name of the hub is returned unchanged.

    Raises:
        UserError: There is no such model.
    """
    if name not in LOCAL and is_hub_name(name):
        return name
    folder = Path(resolve(name)) if name in LOCAL else find_folder(name)
    names = sorted(file.name for file in folder.iterdir() if file.is_file())
    hashed = [name for name in names if name != CARD and not name.startswith(".")]
    lines = [f"{name} {digest}" for name, digest in hash_files(folder, hashed).items()]
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=12).hexdigest()


def split_pieces(text: str) -> list[str]:
    """Splits a text into pieces of up to `PIECE_WORDS` words; a text without words is one piece."""
    words = text.split()
    return [" ".join(words[i : i + PIECE_WORDS]) for i in range(0, len(words), PIECE_WORDS)] or [text]


def compute_cosines(encoder: str, knowledge: Sequence[str], responses: Sequence[str]) -> Values:
    """Computes the cosine of each response with the most similar piece of its knowledge [pairs].

    A text is encoded as the mean of its tokens' last states, scaled to length 1.
    """
    import torch

    from faithkit.weights.load import load_pretrained

    if not len(responses):
        return np.zeros(0)
    model, tokenizer, device = load_pretrained("AutoModel", encoder)
    found = set(responses) | {piece for text in knowledge for piece in split_pieces(text)}
    texts = sorted(found, key=lambda text: (len(text), text))
    vectors: dict[str, Values] = {}
    with torch.inference_mode():
        for begin in range(0, len(texts), BATCH_SIZE):
            batch = texts[begin : begin + BATCH_SIZE]
            inputs = tokenizer(batch, padding=True, truncation=True, max_length=MAX_TOKENS, return_tensors="pt")
            states = model(**inputs.to(device)).last_hidden_state.float()  # [texts, tokens, hidden]
            present = inputs["attention_mask"][..., None].float()
            mean = (states * present).sum(1) / present.sum(1).clamp(min=1)
            units = torch.nn.functional.normalize(mean, dim=-1).double().cpu().numpy()
            vectors |= dict(zip(batch, units, strict=True))
    return np.array(
        [
            max(float(vectors[piece] @ vectors[response]) for piece in split_pieces(text))
            for text, response in zip(knowledge, responses, strict=True)
        ]
    )


THRESHOLD = 0.5
# By key: the name in tables, and the features that are read; those of models only where there is one.
RECIPES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "overlap": ("word overlap", ("unknown share",)),
    "grams": ("4-grams of characters", (GRAMS,)),
    "mismatch": ("numbers and names", ("unknown numbers", "unknown names")),
    "length": ("length", ("response words",)),
    "cosine": ("encoder cosine", (COSINE,)),
    "nli": ("NLI alone", (NLI,)),
    "regression": ("regression", (*WORD_EVIDENCE, COSINE, NLI)),
}


class DomainBaselines:
    """Fits baselines for each domain on the unrelated domains: logistic regressions on counts, or on a model's score.

    A baseline of a domain is fitted on all domains except that domain and those related to it. Every domain, and in it
    each class, has the same weight, however many rows it has. So the threshold of 0.5 is the score where a response is
    as likely hallucinated as not if both classes count the same. The threshold with the best macro-F1 on all rows would
    follow the class shares of the largest domain, and would call nearly all rows of another one alike
    (research/experiments/domains.md, Domain transfer: thresholds).

    Args:
        domains: The rows of all domains.
        features: Computes the features.
        nli: An NLI model; a domain may name another one.
        max_fit_rows: The largest number of training rows of each domain.
    """

    def __init__(
        self, domains: Mapping[str, DomainRows], features: Features, *, nli: str | None, max_fit_rows: int | None
    ):
        self.domains, self.features, self.nli = domains, features, nli
        # What models of other domains learn from never includes the held-out half, or texts that another domain tests.
        # Rows of extra domains are rows of other domains too.
        self.fit_rows: dict[str, Rows] = {}
        for name, of_domain in domains.items():
            if of_domain.domain.extra:
                continue
            others = [other for key, other in domains.items() if key not in of_domain.domain.related_domains]
            excluded = Excluded.of([row for one in others for half in one.halves.values() for row in half.originals])
            rows = concatenate([of_domain.halves[DEV], of_domain.fit_only])
            kept = rows.take([place for place, row in enumerate(rows.originals) if not excluded.covers(row)])
            self.fit_rows[name] = kept.limit(max_fit_rows)

    def find_nli(self, name: str) -> str | None:
        """Finds the NLI model of a domain; None if the benchmark has none."""
        return self.nli and (self.domains[name].domain.nli or self.nli)

    def fit(self, name: str, examples: Sequence[Example], part: str) -> list[Baseline]:
        """Fits every baseline for a domain and predicts its examples; empty where it has no domain to learn from.

        Args:
            part: The part of the domain that the examples are, for file names.
        """
        nli = self.find_nli(name)
        columns = [*FEATURES, GRAMS, *([COSINE] if self.features.encoder else []), *([NLI] if nli else [])]
        rows: dict[str, tuple[Values, NDArray[np.bool_]]] = {}
        for other, fit_rows in self.fit_rows.items():
            gold = np.array([example.label == HALLUCINATED for example in fit_rows.inputs], bool)
            if name not in self.domains[other].domain.related_domains and 0 < gold.sum() < len(gold):
                rows[other] = self.features.compute(f"{other}-fit", fit_rows.inputs, nli), gold
        if not rows:
            return []
        of_domain = self.features.compute(f"{name}-{part}", examples, nli)
        fitted_on = f"{sum(len(gold) for _, gold in rows.values()):,} rows of {', '.join(rows)}"
        found = []
        for key, (title, wanted) in RECIPES.items():
            read = [columns.index(column) for column in wanted if column in columns]
            if not read:
                continue
            model = fit_regression([(features[:, read], gold) for features, gold in rows.values()])
            scores = model.predict_proba(of_domain[:, read])[:, 1] if examples else ()
            predictions = predict_by_threshold((example.id for example in examples), scores, THRESHOLD)
            facts = {"trained_on": list(rows), "features": [columns[place] for place in read]}
            found.append(Baseline(key=key, name=title, predictions=predictions, fitted_on=fitted_on, facts=facts))
        return found


def fit_regression(rows: Sequence[tuple[Values, NDArray[np.bool_]]]) -> Any:
    """Fits a logistic regression; every domain, and in it each class, has the same weight.

    Args:
        rows: For each domain the features [rows, features], and True where hallucinated [rows].
    """
    # scikit-learn is imported here because it would slow down the start of every command.
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, StandardScaler

    features, gold = (np.concatenate(part) for part in zip(*rows, strict=True))
    shares = [0.5 / np.where(of_domain, of_domain.sum(), (~of_domain).sum()) for _, of_domain in rows]
    weights = np.concatenate(shares) * len(gold) / len(rows)
    model = make_pipeline(FunctionTransformer(compress_counts), StandardScaler(), LogisticRegression(max_iter=1000))
    return model.fit(features, gold, standardscaler__sample_weight=weights, logisticregression__sample_weight=weights)
