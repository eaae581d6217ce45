"""Writes the lock files from pyproject.toml: `make lock`. With `--upgrade` to the newest releases that it allows.

requirements/all.lock holds all but torch, whose builds differ by machine: requirements/torch.lock is PyPI's, with its
CUDA packages on Linux, requirements/cpu.lock the CPU build. requirements/dev.lock is what the tests add,
requirements/score.lock an environment for scoring alone, to which requirements/serve.lock adds the HTTP service. All
have hashes, and none says where a package comes from.
"""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECT = ROOT / "pyproject.toml"
TORCH = re.compile(r"(nvidia|cuda)-|(triton|torch)==")  # torch and the packages that only its CUDA builds need
CPU = ("requirements/cpu.lock", "requirements/score.lock")
SERVICE = ("serve", "traces")  # extras
SCORING = {
    "torch",
    "transformers",
    "hydra-core",
    "omegaconf",
    "numpy",
    "safetensors",
    "tokenizers",
    "rich",
    "pydantic",
}
PURPOSES = {
    "requirements/all.lock": "pip install --require-hashes -r requirements/all.lock -r requirements/torch.lock "
    "(or cpu.lock)",
    "requirements/torch.lock": "In addition to requirements/all.lock: torch as PyPI has it, on Linux with CUDA.",
    "requirements/cpu.lock": "In addition to requirements/all.lock: torch's CPU build, for Linux on x86_64 and Python "
    "3.11.",
    "requirements/dev.lock": "In addition to requirements/all.lock: all extras but vllm, and what the tests need.",
    "requirements/score.lock": "Scoring alone, torch's CPU build: pip install --no-compile -r requirements/score.lock",
    "requirements/serve.lock": "In addition to requirements/score.lock: the HTTP service, with traces.",
}


def main() -> None:
    base, dev = compile_lock(PROJECT), compile_lock(PROJECT, "--extra", "all", "--extra", "dev")
    pins = set(map(version_of, dev))
    moved = [pin_of(block) for block in base if version_of(block) not in pins]
    assert not moved, f"the tests need other versions than {moved}"
    scoring = compile_scoring()
    shared = set(map(version_of, scoring))
    (torch,) = (pin_of(block) for block in base if block.startswith("torch=="))
    parts = {
        "requirements/all.lock": [block for block in base if not TORCH.match(block)],
        "requirements/torch.lock": [block for block in base if TORCH.match(block)],
        "requirements/cpu.lock": cpu_build(torch),
        "requirements/dev.lock": [block for block in dev if block not in base],
        "requirements/score.lock": [*scoring, *cpu_build(torch)],
        "requirements/serve.lock": [block for block in compile_scoring(*SERVICE) if version_of(block) not in shared],
    }
    for file, blocks in parts.items():
        (ROOT / file).write_text(f"# Written by `make lock`. {PURPOSES[file]}\n{''.join(blocks)}")
        print(f"{file}: {len(blocks)} packages")


def compile_scoring(*extras: str) -> list[str]:
    """Resolves what scoring imports, and extras, without torch's builds."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    wanted = [line for line in project["dependencies"] if re.match(r"[\w-]+", line)[0] in SCORING]
    wanted += [line for extra in extras for line in project["optional-dependencies"][extra]]
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder, "score.in")
        inputs.write_text("\n".join(wanted))
        return [block for block in compile_lock(inputs) if not TORCH.match(block)]


def compile_lock(inputs: Path, *options: str) -> list[str]:
    """Resolves for every platform from Python 3.11 on; the versions of today's lock files stay where they may.

    Returns:
        Of each package its line with its hashes; one whose version depends on the platform has several.
    """
    with tempfile.TemporaryDirectory() as folder:
        lock = Path(folder, "all.lock")
        kept = [ROOT / file for file in PURPOSES if file not in CPU and (ROOT / file).exists()]
        lock.write_text("".join(file.read_text() for file in kept))
        plain = ["--universal", "--python-version", "3.11", "--generate-hashes", "--no-emit-index-url"]
        command = [sys.executable, "-m", "uv", "pip", "compile", str(inputs), *plain, "--no-header"]
        upgrade = [option for option in sys.argv[1:] if option == "--upgrade"]
        subprocess.run(
            [*command, "--no-annotate", "--quiet", *options, *upgrade, "-o", str(lock)], cwd=ROOT, check=True
        )
        return re.findall(r"^[A-Za-z0-9].*\n(?:[ \t].*\n)*", lock.read_text(), re.MULTILINE)


def pin_of(block: str) -> str:
    """Gives the first line of a package, such as `torch==2.13.0`, with its marker."""
    return block.partition(" \\\n")[0]


def version_of(block: str) -> str:
    """Gives a package with its version alone: on which platforms it is needed may differ."""
    return pin_of(block).partition(" ;")[0]


def cpu_build(torch: str) -> list[str]:
    """Pins torch's CPU build where pip finds one on this machine; it is asked, and installs nothing.

    Hashes that the file has already for this version, such as those of other machines, stay.
    """
    pin, file = f"{torch}+cpu", ROOT / "requirements/cpu.lock"
    old = file.read_text() if file.exists() else ""
    hashes = set(re.findall(r"sha256:\w+", old)) if f"\n{pin} " in old else set()
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet"]
    done = subprocess.run([*pip, "--report", "-", pin], capture_output=True, text=True)
    if done.returncode == 0:
        (found,) = json.loads(done.stdout)["install"]
        hashes.add(f"sha256:{found['download_info']['archive_info']['hashes']['sha256']}")
    assert hashes, f"pip finds no {pin} here: run this where it does"
    return [" \\\n".join([pin, *(f"    --hash={one}" for one in sorted(hashes))]) + "\n"]


if __name__ == "__main__":
    main()
