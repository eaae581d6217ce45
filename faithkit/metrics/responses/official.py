"""F1, BLEU and BERTScore as the q-squared scripts compute them, for FaithDial's Table 5.

FaithDial's README says that its BLEU, ROUGE, F1, BERTScore and Q2 came from github.com/orhonovich/q-squared. Those
scripts compare the response with its knowledge in lower case, never with the gold response, and have no ROUGE:

- `official_f1`: multiset F1 of spaCy's tokens in lower case, without its stop words and punctuation.
- `official_bleu`: sacrebleu's BLEU of each response by itself, 0 below four tokens.
- `official_bertscore`: F1 of roberta-large's layer 17, rescaled by a baseline b: (F1 - b) / (1 - b).

Use them beside published figures; for anything else ours. `q2.official` has Q2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from faithkit.metrics.responses.bert_score import RescaledBertScore
from faithkit.metrics.responses.bleu import bleu, bleu_counts
from faithkit.metrics.responses.ngrams import shared_grams
from faithkit.metrics.responses.q2.score import Q2, Q2Scores
from faithkit.statistics.intervals import Values


@dataclass(frozen=True, slots=True, kw_only=True)
class Official:
    """The scripts' metrics, as far as their models are given; `notes` say which are not."""

    bert_score: RescaledBertScore | None = None
    q2: Q2 | None = None
    notes: tuple[str, ...] = ()

    def score(self, responses: Sequence[str], knowledge: Sequence[str]) -> tuple[dict[str, Values], Q2Scores | None]:
        """Columns of each pair by name, and what Q2 asked."""
        lowered = [text.lower() for text in knowledge]
        columns = {"official_f1": token_f1(responses, lowered), "official_bleu": sentence_bleu(responses, lowered)}
        if self.bert_score is not None:
            columns["official_bertscore"] = self.bert_score.score(responses, lowered)
        if self.q2 is None:
            return columns, None
        found = self.q2.score(responses, knowledge)
        return columns | {"official_q2_f1": found.f1, "official_q2_nli": found.nli}, found


def token_f1(responses: Sequence[str], knowledge: Sequence[str]) -> Values:
    """Computes the F1 of spaCy's content tokens of each pair [N]."""
    [shared] = shared_grams([content_tokens(text) for text in responses], [content_tokens(text) for text in knowledge])
    return shared.f1


def sentence_bleu(responses: Sequence[str], knowledge: Sequence[str]) -> Values:
    """Computes BLEU of each response by itself [N], from 0 to 100, as sacrebleu 1.4 did."""
    return bleu(bleu_counts(responses, knowledge), smooth_no_match=True)


def content_tokens(text: str) -> list[str]:
    """Splits a text by spaCy, in lower case, without its stop words and punctuation."""
    return [token.text.lower() for token in _tokenizer()(text) if not token.is_stop and not token.is_punct]


@cache
def _tokenizer() -> Any:
    """Makes spaCy's English tokenizer as of 2.3, which the scripts ask for: "32-bit" is one token there."""
    import spacy
    from spacy.lang.char_classes import HYPHENS

    pipeline = spacy.blank("en")
    infixes = [str(one).replace(f"0-9])(?:{HYPHENS})", f"])(?:{HYPHENS})") for one in pipeline.Defaults.infixes or ()]
    tokenizer: Any = pipeline.tokenizer
    tokenizer.infix_finditer = spacy.util.compile_infix_regex(infixes).finditer
    return tokenizer
