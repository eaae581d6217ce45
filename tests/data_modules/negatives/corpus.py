"""A few dialogues about places and people, and a finder of entities that knows them by name."""

from functools import cache
from typing import Any

from data_modules.negatives.entity_swap import Entity, Finder, entities_of
from faithkit.records import Example, Turn

PEOPLE = ["Ada Fenn", "Tor Vik", "Una Lys", "Bo Harl", "Mira"]
PLACES = ["Orvel", "Tarn", "Selby", "Lomm"]
YEARS = ["1901", "1934", "1977", "2003"]
TOPICS = ["lighthouse", "windmill", "orchard", "tannery"]


def example(place: int, **values: Any) -> Example:
    """Four dialogues of three turns each, every turn with different knowledge."""
    dialogue = place // 3
    person, town, year = PEOPLE[place % 4], PLACES[(place + dialogue) % 4], YEARS[(place * 3) % 4]
    knowledge = f"Known far and wide, the {TOPICS[dialogue % 4]} of {town} was built by {person} in {year} ({place})."
    response = f"In {year} the {TOPICS[dialogue % 4]} was built by {person}, number {place} of its kind."
    fields: dict[str, Any] = {
        "id": f"{dialogue}:{place % 3}",
        "source": "here",
        "split": "train",
        "group": str(dialogue),
        "knowledge": knowledge,
        "history": (Turn(speaker="seeker", text="Who built it?"),),
        "response": response,
        "original": f"I built it with my uncle, stone by stone, {place} times.",
        "tags": ("Hallucination",) if place % 2 else ("Entailment",),
    }
    return Example(**{**fields, **values})


def corpus(num: int = 12) -> list[Example]:
    return [example(place) for place in range(num)]


@cache
def pipeline() -> Any:
    """spaCy without weights: names and years are what the rules say."""
    import spacy

    blank = spacy.blank("en")
    ruler = blank.add_pipe("entity_ruler")
    labels = {"PERSON": PEOPLE, "GPE": PLACES, "DATE": YEARS}
    ruler.add_patterns([{"label": label, "pattern": text} for label, texts in labels.items() for text in texts])  # type: ignore[attr-defined]
    return blank


def ruled() -> Finder:
    def find(texts: Any) -> list[list[Entity]]:
        return entities_of(pipeline(), texts)

    return find
