"""Small corpora in their official layouts, for what is different from the embedded stand-in."""

from pathlib import Path

from tests.data_modules.official_rows import write

SETS = "benchmark.only=[snli,conjnli]"
NAMES = ("Orvel", "Tarn", "Sel", "Mirrin", "Dovey", "Asby", "Kelda", "Lorne")
PLACES = [f"{name}{end}" for name in NAMES for end in ("", "dale", "mere", "ton", "by")]


def write_corpora(folder: Path) -> Path:
    """Writes SNLI and ConjNLI: of each place a premise that entails one hypothesis and not the other."""
    pairs = [
        ("snli", f"A man walks by the lake of {place} at noon.", f"A {who} walks by {place}.", label)
        for place in PLACES
        for who, label in (("man", "entailment"), ("tall woman", "neutral"))
    ] + [
        ("conjnli", f"{place} and the old mill are in the valley.", f"{place} is {where}.", label)
        for place in PLACES
        for where, label in (("in the valley", "entailment"), ("on a far hill", "contradiction"))
    ]
    snli = [
        {"annotator_labels": [label], "gold_label": label, "pairID": str(i), "sentence1": one, "sentence2": other}
        for i, (name, one, other, label) in enumerate(pairs)
        if name == "snli"
    ]
    conjnli = [
        {"Premise": one, "Hypothesis": other, "Label": label} for name, one, other, label in pairs if name == "conjnli"
    ]
    write(folder / "snli" / "snli_1.0_dev.jsonl", snli)
    write(folder / "conjnli" / "conj_dev.tsv", conjnli)
    return folder
