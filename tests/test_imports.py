"""Imports run one way, and every module loads without the optional packages."""

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.running import ROOT

# A package may import those named here, and itself.
ALLOWED = {
    "faithkit": set(),
    "data_modules": {"faithkit"},
    "critic": {"faithkit", "data_modules"},
    "generation": {"faithkit", "data_modules"},
    "judge": {"faithkit", "data_modules"},
    "construction": {"faithkit", "data_modules"},
    "faithkit_workflows": (BELOW := {"faithkit", "data_modules", "critic", "generation", "judge", "construction"}),
    "faithkit_papers": BELOW | {"faithkit_workflows"},
}
# The folders and files of faithkit from the bottom to the top: each imports lower floors alone.
FLOORS = (
    "errors words signals",
    "records languages packages",
    "settings arguments evidence __main__",
    "fast calibration cli targets",
    "files baselines",
    "statistics published",
    "scores detector",
    "weights",
    "inference metrics provenance",
    "pages",
    "reports runs",
    "training",
)
MODULES = sorted(path for package in ALLOWED for path in (ROOT / package).rglob("*.py"))
OPTIONAL = ("tensorboard", "gguf", "vllm", "ray", "peft", "openai", "onnx", "onnxscript", "onnxruntime", "nltk")


def imported(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    return {name.split(".")[0] for name in names}


def test_a_package_imports_those_below_it_alone() -> None:
    face = ROOT / "faithkit" / "__init__.py"  # names what lies above it, and imports it when it is used
    for path in MODULES:
        package = path.relative_to(ROOT).parts[0]
        assert path == face or imported(path) & set(ALLOWED) <= ALLOWED[package] | {package}, path


def test_fast_code_is_reached_through_its_door_alone() -> None:
    tests = ROOT / "tests"
    inside = [ROOT / "faithkit" / "fast", tests / "faithkit" / "fast", tests / "critic" / "test_precision.py"]
    for path in [*MODULES, *tests.rglob("*.py"), *(ROOT / "speed").rglob("*.py"), *ROOT.glob("*.py")]:
        if not any(path.is_relative_to(part) for part in inside):
            assert not re.search(r"^\s*(from|import) faithkit\.fast\.", path.read_text(), re.MULTILINE), path


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def folder_of(path: Path) -> str:
    """The folder of a file: the first two parts of its path; a file of a package's top counts by itself."""
    package, *rest = path.relative_to(ROOT).parts
    return f"{package}/{rest[0]}"


def imports_between(unit: Callable[[Path], str]) -> dict[str, set[str]]:
    """The files or folders that each file or folder imports, also within functions."""
    modules = {module_of(path): path for path in MODULES}
    graph: dict[str, set[str]] = {}
    for path in modules.values():
        nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        targets = {(str(node.module), f"{node.module}.{alias.name}") for node in nodes for alias in node.names}
        found = {member if member in modules else module for module, member in targets} & set(modules)
        graph.setdefault(unit(path), set()).update(unit(modules[name]) for name in found)
    return {name: known - {name} for name, known in graph.items()}


@pytest.mark.parametrize("unit", [str, folder_of])
def test_there_are_no_cycles_of_files_or_folders(unit: Callable[[Path], str]) -> None:
    TopologicalSorter(imports_between(unit)).prepare()  # raises CycleError, which names the cycle


def test_a_folder_of_faithkit_imports_lower_floors_alone() -> None:
    floor = {name: number for number, names in enumerate(FLOORS) for name in names.split()}
    for folder, imported in imports_between(folder_of).items():
        name = Path(folder).stem
        if folder.startswith("faithkit/") and name != "__init__":
            assert name in floor, f"give {folder} a floor"
            assert all(floor[Path(other).stem] < floor[name] for other in imported), (folder, imported)


def test_every_module_loads_without_the_optional_packages() -> None:
    # An adapter is for a tool that is there: tests/faithkit_workflows/adapters/ imports each without its tool.
    loaded = [path for path in MODULES if path.stem != "__main__" and "adapters" not in path.parts]
    code = "import sys, importlib\n" + "".join(f"sys.modules[{name!r}] = None\n" for name in OPTIONAL)
    code += "".join(f"importlib.import_module({module_of(path)!r})\n" for path in loaded)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
