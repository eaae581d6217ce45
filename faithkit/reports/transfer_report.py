"""Transfer of critics across datasets: our accuracies and those of FaithDial, Table 4 (Dziri et al. 2022).

The paper gives accuracy alone. Test sets differ in balance, so ours are shown with macro-F1 and the majority class.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from faithkit.calibration.aims import ARGMAX
from faithkit.metrics.results import Results
from faithkit.pages.page_tables import escape_terminal, format_percent, format_published, new_number_table
from faithkit.published.published_tables import published_table
from faithkit.statistics.metric import Metric

TRAINED_ON = ("decode", "dnli", "mnli", "faithcritic")
TESTED_ON = ("mnli", "begin", "faithcritic")
UNKNOWN = "unknown"
TITLES = {"decode": "DECODE", "dnli": "DNLI", "mnli": "MNLI", "begin": "BEGIN", "faithcritic": "FaithCritic"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Scores of a critic trained on one dataset and tested on another; shares, not percent."""

    trained_on: str
    tested_on: str
    accuracy: Metric
    macro_f1: Metric
    majority_accuracy: Metric

    def __post_init__(self) -> None:
        if self.trained_on not in TRAINED_ON or self.tested_on not in TESTED_ON:
            known = f"trained on {TRAINED_ON}, tested on {TESTED_ON}"
            raise ValueError(f"the transfer table has no place for {self.trained_on} on {self.tested_on}; {known}")


def collect_transfers(trained_on: str, results: Results, *, split: str = "test") -> list[Transfer]:
    """Collects the cells of one critic's results; benchmarks that are not in the table are skipped."""
    cells = []
    for tested_on in TESTED_ON:
        found = results.of(split, tested_on)
        names = ("accuracy", "macro_f1", "majority_accuracy")
        if all(name in found for name in names):
            cells.append(Transfer(trained_on=trained_on, tested_on=tested_on, **{name: found[name] for name in names}))
    return cells


def transfer_table(
    cells: Sequence[Transfer],
    *,
    sources: Mapping[str, str] | None = None,
    chosen_on: Mapping[str, str] | None = None,
    threshold_aim: str | None = None,
) -> Table:
    """Shows Table 4 with our figures under the paper's, all in percent.

    Args:
        cells: One for each critic and test set that was run; the others show a dash.
        sources: What was used for each dataset, for example `{"begin": "BEGIN 2022, Wizard of Wikipedia part"}`.
        chosen_on: The rows that chose the checkpoint of each critic.
        threshold_aim: How all thresholds were chosen; None: by the training of each critic.
    """
    place = {(cell.trained_on, cell.tested_on): cell for cell in cells}
    assert len(place) == len(cells), "two cells for one place of the table"
    accuracies = paper_accuracies()
    title, heads = "Critics across datasets, accuracy in percent (FaithDial, Table 4)", [TITLES[t] for t in TESTED_ON]
    table = new_number_table(title, "trained on", heads, show_edge=True)
    for trained_on in TRAINED_ON:
        ours = [place.get((trained_on, tested_on)) for tested_on in TESTED_ON]
        paper = [format_published(accuracies[trained_on, t]) + _mark(trained_on, t) for t in TESTED_ON]
        table.add_row(Text(TITLES[trained_on], style="bold"))
        table.add_row("  paper", *paper)
        table.add_row("  ours", *(_percent(cell.accuracy, cell) if cell else "-" for cell in ours))
        table.add_row("  macro-F1", *(_percent(cell.macro_f1) if cell else "-" for cell in ours))
        table.add_row(
            "  majority", *(_percent(cell.majority_accuracy) if cell else "-" for cell in ours), end_section=True
        )
    table.add_row("test rows", *(_sizes(cells, tested_on) for tested_on in TESTED_ON))
    named = sources or {}
    table.add_row("tested on", *(Text(escape_terminal(named.get(tested_on, UNKNOWN))) for tested_on in TESTED_ON))
    lines = [
        "† zero-shot; [low, high] 95% bootstrap interval over groups; majority: accuracy of the more frequent class"
    ]
    used = [name for name in TRAINED_ON if any(cell.trained_on == name for cell in cells)]
    for name in used:
        chosen = (chosen_on or {}).get(name, "unknown rows")
        lines.append(f"trained on {TITLES[name]}: {escape_terminal(named.get(name, UNKNOWN))}; chosen on {chosen}")
    lines.append(_threshold_line(threshold_aim))
    table.caption = Text("\n".join(lines))
    return table


def paper_accuracies() -> dict[tuple[str, str], float]:
    """Reads the paper's accuracies in percent, by training and test set."""
    rows = published_table("faithdial_transfer").rows
    return {(row["trained_on"], row["tested_on"]): row["accuracy"] for row in rows}


def _threshold_line(aim: str | None) -> str:
    if aim == ARGMAX:
        return "threshold: the more probable class (0.5), as in the paper's release; chosen on no rows"
    return "threshold: chosen for each critic on the rows that chose its checkpoint"


def _mark(trained_on: str, tested_on: str) -> str:
    return "" if trained_on == tested_on else "†"


def _percent(metric: Metric, cell: Transfer | None = None) -> Text:
    text = format_percent(metric)
    if cell is not None:
        value, *bounds = text.split(" ", 1)
        text = " ".join([value + _mark(cell.trained_on, cell.tested_on), *bounds])
    return Text(text)


def _sizes(cells: Sequence[Transfer], tested_on: str) -> str:
    sizes = {cell.accuracy.n for cell in cells if cell.tested_on == tested_on and cell.accuracy.n}
    return " or ".join(f"{n:,}" for n in sorted(sizes)) or "-"
