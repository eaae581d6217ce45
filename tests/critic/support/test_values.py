"""Values of an answer are compared with those of its context after normalisation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critic.support.values import compare_values, read_values

MANUAL = (
    "The warranty lasts 24 months. Rinse it for 30 seconds. Ships on 3 May 2026 from 20 to 60 euros. Room A-113. "
    "Open from 9 am to 5 pm. The lid weighs 1.5 kg and holds 12.3 million drops. Five cups a day, 40 percent sugar."
)


def relations(context: str, answer: str, question: str = "") -> dict[str, str]:
    return {pair.value.text: pair.relation for pair in compare_values(context, answer, question)}


ADDRESSES = (
    *("anna.bert@example.org", "anna.berg@example.org", "https://example.org/v3/setup", "https://example.org/v2/setup"),
    *("src/app/mail.py", "src/app/main.py"),
)
SUPPORTED = [  # other notations, conversions and sums
    *("It lasts two years.", "Half a minute of rinsing, or 30 s.", "It ships on May 3rd, 2026, or 2026-05-03."),
    *("It costs between 20 and 60 €, for example 35 euros.", "Room a113.", "Open 9:00 to 17:00."),
    *("It weighs 1,500 grams.", "It holds about 12 million drops.", "Five cups daily."),
    *("60 percent is something else than sugar.", "About two dozen months of warranty, roughly 25 months."),
]
IMPLIED = [
    ("No more than 10 hours a week and 120 a year.", "At most 120 hours a year."),
    ("He sued for 5,000 euros; the court gave him 2,000, since he was to blame.", "He was given 2,000 euros."),
    (
        "The first 12 weeks are paid in full, the next 8 at 60 percent.",
        "20 weeks: twelve with full pay and eight less.",
    ),
    ("The rent went up from 11.80 to 12.40 euros.", "It rose by 60 cents."),
    ("Trains 1,500 euros, buses 800 euros.", "Trains cost 700 more."),
    ("The ride takes 3 h 20 min.", "It takes 200 minutes."),
    ("Open from 6:45 to 19:10.", "It opens at quarter to seven and closes at ten past seven in the evening."),
    ("Lessons start at 4.15 pm, until 23:00.", "They start at quarter past four and end at 11 o'clock."),
    ("It takes 75 minutes.", "It takes an hour and a quarter."),
    ("Take 0.5 mg per kg.", "Half a milligram per kilogram."),
    ("It has six instruments and 250,000 copies.", "Half a dozen instruments, a quarter of a million copies."),
    ("Apply it 25 minutes before you go out.", "Applied at 8:00, it works from 8:25."),
    ("Lake A is 68 m deep. It is cold. Lake B lies north and is 15 m deep.", "A is 53 m deeper than B."),
    ("Born in 1949, she left home at 17.", "She left at 17, around 1966."),
    ("The picture was sold in 2011. It had been painted in 1975.", "36 years later it was sold."),
    ("Over 5,700 people signed.", "More than 5,500 people signed it."),
    ("It holds 68% of the votes.", "More than two thirds of the votes."),
    ("Support answers on weekdays.", "Call from Monday to Friday."),
    ("Open until 7 pm, from May two hours longer.", "In May it closes at 9 pm."),
    ("The course runs from 4 March to 28 November.", "It takes almost nine months."),
    ("Repaid in 60 equal monthly instalments.", "It runs for five years."),
    ("Days must be taken by 31 March.", "Take them before April."),
    ("They arrive in May.", "They come in spring."),
    ("The hearing is on Monday, the verdict follows two days later.", "The verdict is on Wednesday."),
    ("Free slots: 2026-05-19 08:00, 2026-05-21 16:30.", "You are free on Tuesday at 8:00 and Thursday at 16:30."),
    ("Read https://www.example.org/setup and src/app/main.py.", "See example.org/setup and app/main.py; main.py runs."),
    ("Parcel 00340434161094021501 holds 123,456 parts.", "Parcel 00340434161094021501 holds about 123,500 parts."),
    ("The flat has 72 square metres and 2 GB.", "It has 72 m², or 72 m2, and 2,048 MB."),
    ("Bake 2 1/2 cups at 200 °C for 10 000 people.", "Two and a half cups at 392 °F for ten thousand people."),
    ("The rent is 980 euros plus 150 euros.", "You pay 1,130 euros."),
    ("The ferry departs at 7:15; the crossing takes 50 minutes.", "It arrives at 8:05."),
    ("It costs 240 euros; students get 25% off.", "Students pay 180 euros."),
    ("The course has 12 lessons of 90 minutes.", "It has 18 hours."),
    ("Cars cost 34 euros each way.", "A return costs 68 euros."),
    ("It starts on 2 September. Cancel up to 7 days before the start.", "You can cancel until 26 August."),
    ("Overtime is paid at 125 percent.", "One and a quarter times the wage."),
    ("Membership costs 29 euros a month.", "A year costs 348 euros."),
    ("Headache is common (up to 1 in 10 people).", "As many as 10 percent get a headache, one person out of ten."),
    ("In cities the number fell by a fifth.", "Cities lost 20 per cent."),
    ("It costs £18,000.", "It costs 18,000 pounds."),
    ("Children under 16 pay nothing.", "It is free up to the age of fifteen."),
    ("41,200 flats were built.", "A little over forty-one thousand flats were built."),
    ("Gifts may be worth 40 euros per person and year.", "Forty euros a year."),
    ('Up to ten "keep in touch" days are possible.', "Up to ten days."),
    ("The project may lose 5 mln bucks on friday.", "It may lose 5 million dollars on Friday."),
    ("Workers have overtime under the FLSA.", "It is due under the Fair Labor Standards Act."),
    ("The bipolar junction transistor is small.", "The BJT is small."),
    ("Sales in May were 1.2 million, 200,000 more than in April.", "In April 1 million were sold."),
    ("The Italian and the Danish singer met Chris Johnson.", "She met Christopher Johnson in Italy, he in Denmark."),
    ("The French, the Chinese and the Georgian team won.", "Georgia, China and France won."),
    ("Finnish law applies to 3 cases.", "The law of Finland applies. See passage 7. Step 9: Wait."),
    ("The warranty lasts 24 months. Page 9 says that the warranty lasts 36 months.", "It lasts 24 months."),
    ("The warranty lasts 24 months. Page 9 says that the warranty lasts 36 months.", "It lasts 36 months."),
]


@pytest.mark.parametrize(("context", "answer"), [*((MANUAL, answer) for answer in SUPPORTED), *IMPLIED])
def test_what_the_context_says_or_implies_is_supported(context: str, answer: str) -> None:
    found = compare_values(context, answer)
    assert (found or context != MANUAL) and not [pair for pair in found if pair.is_unsupported]


@pytest.mark.parametrize(
    ("context", "answer", "wrong", "closest"),
    [
        (MANUAL, "The warranty lasts 36 months.", "36 months", "24 months"),
        (MANUAL, "The warranty lasts 24 weeks.", "24 weeks", "24 months"),
        (MANUAL, "Rinse it for 50 seconds.", "50 seconds", "30 seconds"),
        (MANUAL, "It ships on 13 May 2026.", "13 May 2026", "3 May 2026"),
        (MANUAL, "Go to room A-131.", "A-131", "A-113"),
        (MANUAL, "The lid weighs 15 kg.", "15 kg", "1.5 kg"),
        (MANUAL, "Five cups a week.", "a week", "a day"),
        (MANUAL, "It has 45 percent sugar.", "45 percent", "40 percent"),
        ("Order 4711234 is paid.", "Order 4711235 is paid.", "4711235", "4711234"),
        ("Account 12345678, code 12.", "Account 12345679, code 12.", "12345679", "12345678"),
        (
            "Parcel 00340434161094021501.",
            "Parcel 00340434161094021502.",
            "00340434161094021502",
            "00340434161094021501",
        ),
        ("Write to anna.berg@example.org.", "Write to anna.bert@example.org.", *ADDRESSES[:2]),
        ("See https://example.org/v2/setup.", "See https://example.org/v3/setup.", *ADDRESSES[2:4]),
        ("The code is in src/app/main.py.", "The code is in src/app/mail.py.", *ADDRESSES[4:]),
        ("It cost 1,234,567 euros.", "It cost 1,234,568 euros.", "1,234,568 euros", "1,234,567 euros"),
        ("The fair is on 19 May 2026.", "It is on Wednesday, 19 May.", "Wednesday", None),
        ("The office is in Austria.", "The office is in Australia.", "Australia", "Austria"),
        ("It is led by Anna Schmidt.", "It is led by Anna Schmitz.", "Schmitz", "Schmidt"),
        ("Dr. Lee and Mr. Brown signed it.", "Dr. Kim signed it.", "Kim", None),
        ("It has 300 pupils, 40 fewer than last year.", "Last year it had 260 pupils.", "260", "300"),
        ("It was founded by Johnson.", "It was founded by Johnston.", "Johnston", "Johnson"),
        # What only looks computed.
        ("The dose is 250 mg twice a day for two weeks.", "Take it for two days.", "two days", None),
        ("Open from Monday to Friday; mail is answered within two days.", "Monday to Saturday.", "Saturday", "Friday"),
        ("The ferry departs at 7:15; the crossing takes 50 minutes.", "It arrives at 8:15.", "8:15", "7:15"),
        ("It costs 240 euros; students get 25% off.", "Students pay 215 euros.", "215 euros", "240 euros"),
        ("The course has 12 lessons of 90 minutes.", "It has 20 hours.", "20 hours", "90 minutes"),
        ("It runs on Fridays. Refunds end the day before.", "It runs on Thursdays.", "Thursdays", "Fridays"),
        ("Headache affects up to 1 in 10 people.", "It affects 1 in 100 people.", "1 in 100", "1 in 10"),
        ("Tuesday is an office day.", "The office day is Wednesday.", "Wednesday", None),
        ("It closes at 18:30.", "It closes at half past seven.", "half past seven", None),
        ("Take 0.5 mg per kg.", "A milligram and a half per kilogram.", "A milligram and a half", None),
        ("Kept for 30 days, with Pro for 180 days.", "Kept for 30 weeks.", "30 weeks", None),
        ("Updates end on 30 June 2026.", "Updates end on 30 December 2026.", "30 December 2026", None),
        ("A thousand people came, half of them in March.", "Three thousand people came.", "Three thousand", None),
        ("1. Owners pay 150 euros. 2. It is valid for 2 years.", "It is valid for two months.", "two months", None),
        ("Two members cook. The radiator starts below 5 degrees.", "It starts below 10 degrees.", "10 degrees", None),
    ],
)
def test_another_value_names_the_closest(context: str, answer: str, wrong: str, closest: str | None) -> None:
    [pair] = [pair for pair in compare_values(context, answer) if pair.is_unsupported]
    assert pair.value.text == wrong
    assert closest is None or (pair.closest and pair.closest.text) == closest


def test_a_value_of_the_question_is_not_judged_and_one_of_no_kind_is_absent() -> None:
    assert relations(MANUAL, "Yes, 700 volts are fine.", "Are 700 volts fine?") == {"700 volts": "in the question"}
    assert relations("The lid is red.", "The lid is 700 mm wide.") == {"700 mm": "absent"}


def test_an_amount_that_is_asked_for_may_be_a_sum_and_a_date_of_the_question_may_be_shifted() -> None:
    context = "It employs 86 people in Leeds and 34 in Gdansk. Bicycles are booked two days before departure."
    assert relations(context, "120 people.", "How many people work there?") == {"120": "computed"}
    assert relations(context, "120 people.", "Who works there?") == {"120": "different"}
    assert relations(context, "On Wednesday.", "When do I book for Friday?") == {"Wednesday": "computed"}
    assert relations("29 euros a month.", "384 euros.", "What does a year cost?") == {"384 euros": "different"}


def test_a_count_is_judged_only_beside_a_count_of_the_same_thing() -> None:
    assert relations("The Danube flows through ten countries.", "It flows through twelve.")["twelve"] == "different"
    assert "two" not in relations("Wash it, then dry it. It has 9 parts.", "There are two steps.")


VALUE_TEXTS = st.lists(
    st.sampled_from(
        "12 3.5 1,000 ½ half a an third two hundred and million % € euros kg months day per once 9:00 pm o'clock May "
        "2026 2026-13-45 A-1 °C degrees - to . , zorkmids thirty-one twenty Monday spring quarter of "
        f"2026-05-19 9999-12-31 99999999999 {'9' * 400} days years later total".split()
    )
    | st.text(max_size=4),
    max_size=14,
).map(" ".join)


@given(VALUE_TEXTS, VALUE_TEXTS)
def test_any_texts_are_compared_and_values_point_into_them(context: str, answer: str) -> None:
    for text in (context, answer):
        for value in read_values(text):
            assert text[value.start : value.end] == value.text != ""
    for pair in compare_values(context, answer):
        assert pair.closest is None or pair.closest in read_values(context)


@given(VALUE_TEXTS)
def test_a_context_supports_itself(text: str) -> None:
    assert not [pair for pair in compare_values(text, text) if pair.is_unsupported]


@pytest.mark.parametrize(
    ("text", "amounts"),
    [
        ("One euro fifty for each delay.", [1.5]),
        ("Two dollars fifty.", [2.5]),
        ("Two euros, 20 minutes later.", [2.0, 20.0]),
        ("5 euros 20 times.", [5.0, 20.0]),
        ("20 € 30 people.", [20.0, 30.0]),
        ("From 20 € to € 30.", [20.0, 30.0]),
        ("From €10k to $5m, 20k people.", [10_000.0, 5e6, 20_000.0]),
    ],
)
def test_a_currency_belongs_to_one_number(text: str, amounts: list[float]) -> None:
    assert [value.amount for value in read_values(text)] == amounts
