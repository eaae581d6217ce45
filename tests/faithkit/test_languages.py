"""Texts in other languages are found by script and function words; nothing is reported that is not clear."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faithkit.errors import UserError
from faithkit.files.jsonl import read_jsonl
from faithkit.files.model_folder import card_languages
from faithkit.languages import (
    ANY,
    MIN_LETTERS,
    MIN_WORDS,
    SINGLE,
    STOP,
    WARN,
    WORDS,
    describe_other_languages,
    find_other_language,
    identify_language,
    report_other_languages,
)
from faithkit.provenance.used_model import DATASETS, trained_languages
from tests.running import ROOT

TEXTS = {
    "de": "Die Pumpe hat eine Garantie von 36 Monaten ab dem Kauf, und der Filter ist nicht dabei.",
    "fr": "Le musée est ouvert tous les jours sauf le lundi, et les enfants ne doivent pas payer dans les salles.",
    "es": "La garantía de la bomba es de 36 meses desde la compra, pero no cubre el filtro que está dentro.",
    "it": "Il museo è aperto dal martedì alla domenica, ma i bambini non possono entrare senza i genitori.",
    "pt": "O museu abre de terça a domingo, mas as crianças não pagam a entrada quando vêm com os pais.",
    "nl": "Het museum is van dinsdag tot en met zondag geopend, maar niet op de dagen die hieronder worden genoemd.",
    "sv": "Museet är öppet från tisdag till söndag, och barn som är under 14 år behöver inte betala.",
    "pl": "Tego leku nie należy przyjmować z alkoholem, ale można go przyjmować po jedzeniu lub przed nim.",
    "cs": "Muzeum je otevřeno od úterý do neděle, ale v pondělí není, protože se v něm také uklízí.",
    "tr": "Bu müze her gün açık değil ve pazartesi günleri için bir bilet daha satılmıyor.",
    "ru": "Фильтр меняют каждые три месяца, и он не входит в гарантию, которая действует три года.",
    "uk": "Музей відчинено з вівторка до неділі, але не в понеділок, коли він зачинений.",
    "ar": "لا يشمل الضمان الفلتر الذي يجب أن يتم تغييره كل ثلاثة أشهر من تاريخ الشراء.",
    "fa": "گارانتی پمپ ۳۶ ماه از تاریخ خرید است و فیلتر را شامل نمی شود.",
    "hi": "पंप की वारंटी खरीद की तारीख से 36 महीने की है।",
    "zh": "水泵自购买之日起保修三十六个月。",
    "ja": "ポンプの保証期間は購入日から36か月です。",
    "ko": "펌프의 보증 기간은 구입일로부터 36개월입니다.",
}
ENGLISH_TEXTS = (
    "In El Salvador, the Costa de la Libertad hosts the Festival de las Flores del Mar.",
    "San José de las Lajas, San Antonio de los Baños, Santa Cruz del Norte",
    "Das Boot, Die Welle, Der Untergang and Das Leben der Anderen are German films.",
    "van der Berg, van den Broek, de Vries, van Dijk, el Greco, da Vinci, du Pont",
    "The word for river is река in Russian, 川 in Japanese and नदी in Hindi, and they mean the same.",
    "E = mc², α + β = γ, Σ over all i, with Δx and ∂f and λ and μ and ρ.",
    "Order no. 4711: qty 3, SKU de-la-34, EUR 12.50, ES/PT/DE/FR",
    "def f(de, la, les): return de + la + les",
    "Godfrey v. Georgia, 446 U.S. 420 (1980); Men's, Women's and Boys' finals",
)


@pytest.mark.parametrize(("code", "text"), TEXTS.items())
def test_a_text_has_its_language_unless_the_detector_reads_it(code: str, text: str) -> None:
    assert identify_language(text) == code
    for read in ([code], [f"{code}-XY"], ["en", code], [ANY], ["xx"]):  # a code that the table lacks may be this one
        assert identify_language(text, read) is None
    assert find_other_language("36 x", text, ["en"]) == find_other_language(text, "", ["en"]) == code


@pytest.mark.parametrize("text", ENGLISH_TEXTS)
def test_names_formulas_and_single_words_of_others_are_no_other_language(text: str) -> None:
    assert identify_language(text) is None


def test_the_english_answers_have_no_warning() -> None:
    paths = sorted((ROOT / "data_modules/everyday_answers").glob("*.jsonl"))
    rows = [row for path in paths for row in read_jsonl(path)]
    assert len(rows) > 8000
    assert not [row["id"] for row in rows if find_other_language(row["response"], row["knowledge"], ["en"])]


def test_an_english_text_is_another_language_for_a_detector_of_german() -> None:
    assert identify_language("The pump has a warranty of 24 months, and the filter is not part of it.", ["de"]) == "en"


def test_a_script_with_several_languages_and_no_clear_one_is_named_by_its_script() -> None:
    assert identify_language("Гарантия: двадцать четыре месяца") == "und-Cyrl"
    assert identify_language("Гарантия: двадцать четыре месяца", ["en", "uk"]) is None


@given(
    st.lists(st.sampled_from(sorted({w for words in WORDS["Latn"].values() for w in words})), max_size=MIN_WORDS - 1)
)
def test_few_words_have_no_language(words: list[str]) -> None:
    assert identify_language(" ".join(words)) is None


@given(st.text(st.characters(exclude_categories=["Lu", "Ll", "Lt", "Lm"]), max_size=MIN_LETTERS - 1))
def test_few_letters_have_no_script(text: str) -> None:
    assert identify_language(text) is None


@given(st.text(max_size=200), st.sets(st.sampled_from([*SINGLE.values(), *WORDS["Latn"], *WORDS["Arab"]]), max_size=4))
def test_any_text_is_read_and_an_expected_language_is_never_reported(text: str, expected: set[str]) -> None:
    assert identify_language(text, expected) not in expected


def test_rows_are_counted_in_one_warning_or_refused(caplog: pytest.LogCaptureFixture) -> None:
    found = [None, "de", "zh", "de"]
    text = "3 of 4 rows (75.0%) are in a language that the detector does not read: de 2, zh 1; it reads en"
    assert describe_other_languages(found, ["en"]) == text
    report_other_languages(found, ["en"], WARN)
    assert [record.message for record in caplog.records] == [text]
    with pytest.raises(UserError, match=r"75\.0%.*\n.*on_language=warn"):
        report_other_languages(found, ["en"], STOP)
    report_other_languages([None], ["en"], STOP)


def test_a_trained_model_reads_the_languages_of_its_data() -> None:
    def origin(*names: str) -> dict[str, object]:
        return {"data": {"sizes": {"train": dict.fromkeys(names, 10)}}}

    assert trained_languages(origin("faithdial", "embedded_ragtruth")) == ("en",)
    assert trained_languages(origin("psiloqa", "ragtruth")) == tuple(sorted(DATASETS["psiloqa"]["language"]))
    assert trained_languages(origin("pairs")) == trained_languages({}) == (ANY,)
    known = {code for words in WORDS.values() for code in words} | {*SINGLE.values()}
    assert {code for one in DATASETS.values() for code in one.get("language", ())} <= known


@pytest.mark.parametrize(
    ("text", "languages"),
    [
        ("---\nlanguage: de\nlicense: mit\n---\n# Card", ("de",)),
        ("---\nlanguage:\n- de\n- fr\n---\n", ("de", "fr")),
        ("---\nlanguage: multilingual\n---\n", (ANY,)),
        ("---\nlanguage: [\n---\n", None),
        ("---\n- a\n---\n", None),
        ("# A card without metadata", None),
    ],
)
def test_a_model_card_states_languages(text: str, languages: tuple[str, ...] | None, tmp_path: Path) -> None:
    assert card_languages(tmp_path) is None
    (tmp_path / "README.md").write_text(text)
    assert card_languages(tmp_path) == languages
