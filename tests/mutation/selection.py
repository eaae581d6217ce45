"""Chooses the files whose code is changed, and the test files that should notice."""

import ast
import os
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What figures, training and runs rest on; how a plot looks is judged by eye.
CENTRAL = (
    "faithkit/metrics",
    "faithkit/statistics",
    "faithkit/packing.py",
    "faithkit/files",
    "generation/objectives",
    "data_modules/encoding",
    "critic/tagger/span_calibration.py",
    "critic/sequence/scorer.py",
    "faithkit/training/batching.py",
    "judge/locate.py",
    "judge/reply.py",
)
LEFT_OUT = ("__init__.py", "dialogue_plots.py", "plots.py", "plotting.py", "rate_plots.py")
PACKAGES = ("faithkit", "critic", "generation", "judge", "construction", "data_modules", "faithkit_workflows", "tests")


def central_files(root: Path = ROOT) -> list[str]:
    """The files to change, relative to the root."""
    found: list[Path] = []
    for name in CENTRAL:
        place = root / name
        found += sorted(place.rglob("*.py")) if place.is_dir() else [place]
    return [str(path.relative_to(root)) for path in found if path.name not in LEFT_OUT]


def choose_tests(path: str, root: Path = ROOT) -> list[str]:
    """The test files for a file: the one of its name, those that import it, then those that import its importers."""
    importers = _importers(root)
    own = Path("tests") / Path(path).with_name(f"test_{Path(path).name}")
    found = [str(own)] if (root / own).is_file() else []
    seen, ring = {path}, [path]
    while ring:
        ring = sorted({other for code in ring for other in importers.get(code, ())} - seen)
        seen.update(ring)
        tests = [code for code in ring if Path(code).name.startswith("test_") and code not in found]
        found += sorted(tests, key=lambda test: -_num_shared(path, test.removeprefix("tests/")))
    return found


def _num_shared(one: str, other: str) -> int:
    """Counts the folders, from the first, that two files share."""
    return len(Path(os.path.commonpath([one, other])).parts)


@cache
def _importers(root: Path) -> dict[str, set[str]]:
    """The files that import each file, by its path."""
    found: dict[str, set[str]] = defaultdict(set)
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            own = str(path.relative_to(root))
            for name in _imported(path):
                for target in (f"{name}.py", f"{name}/__init__.py", f"{name.rpartition('/')[0]}.py"):
                    if target != ".py" and (root / target).is_file():
                        found[target].add(own)
                        break
    return found


def _imported(path: Path) -> set[str]:
    """The modules and members that a file imports, as paths without their ending."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return {name.replace(".", "/") for name in names if name.partition(".")[0] in PACKAGES}
