"""Small corpora in their official layouts, for what is different from the embedded stand-in."""

from pathlib import Path

from tests.data_modules.official_rows import write

SETS = "benchmark.only=[snli,conjnli]"
NAMES = ("Orvel", "Tarn", "Sel", "Mirrin", "Dovey", "Asby", "Kelda", "Lorne")
PLACES = [f"{name}{end}" for name in NAMES for end in ("", "dale", "mere", "ton", "by")]


def write_corpora(folder: Path) -> Path:
    """Writes SNLI and ConjNLI: of each place a premise that entails one hypothesis and not the other."""
    snli: list[dict[str, object]] = []
    conjnli = []
    for place in PLACES:
        lake, mill = f"A man walks by the lake of {place} at noon.", f"{place} and the old mill are in the valley."
        for who, label in (("man", "entailment"), ("tall woman", "neutral")):
            texts = {"sentence1": lake, "sentence2": f"A {who} walks by {place}."}
            snli.append({"annotator_labels": [label], "gold_label": label, "pairID": str(len(snli)), **texts})
        for where, label in (("in the valley", "entailment"), ("on a far hill", "contradiction")):
            conjnli.append({"Premise": mill, "Hypothesis": f"{place} is {where}.", "Label": label})
    write(folder / "snli" / "snli_1.0_dev.jsonl", snli)
    write(folder / "conjnli" / "conj_dev.tsv", conjnli)
    return folder
