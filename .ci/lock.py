"""Writes the lock files from pyproject.toml: `make lock`. With `--upgrade` to the newest releases that it allows.

requirements.lock holds everything that a CPU needs, requirements-cuda.lock what PyPI's torch needs besides on Linux,
requirements-dev.lock what the tests add. All have hashes, and none says where a package comes from.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CUDA = re.compile(r"(nvidia|cuda)-|triton==")  # torch's own packages, which its CPU builds do not have
HEAD = "# Written by `make lock`. {}\n"
PURPOSES = {
    "requirements.lock": "pip install --require-hashes -r requirements.lock; pip install --no-deps -e .\n"
    "# torch's hashes are those of PyPI's builds and of the CPU build for Linux on x86_64, Python 3.11.",
    "requirements-cuda.lock": "Beside requirements.lock, where torch comes from PyPI and the machine is Linux.",
    "requirements-dev.lock": "Beside requirements.lock, for the tests.",
}
Blocks = dict[str, str]  # of each package its line with its hashes


def main() -> None:
    base, dev = compile_lock(), compile_lock("--extra", "dev")
    moved = [name for name in base if base[name].split()[0] != dev[name].split()[0]]
    assert not moved, f"the tests need other versions: {moved}"
    cuda = {name: block for name, block in base.items() if CUDA.match(block)}
    base["torch"] = with_hashes(base["torch"], known_hashes(base["torch"]) | cpu_hash(base["torch"]))
    parts: dict[str, Blocks] = {
        "requirements.lock": {name: block for name, block in base.items() if name not in cuda},
        "requirements-cuda.lock": cuda,
        "requirements-dev.lock": {name: block for name, block in dev.items() if name not in base},
    }
    for file, blocks in parts.items():
        (ROOT / file).write_text(HEAD.format(PURPOSES[file]) + "".join(blocks[name] for name in sorted(blocks)))
        print(f"{file}: {len(blocks)} packages")


def compile_lock(*options: str) -> Blocks:
    """Resolves for every platform from Python 3.11 on; the versions of today's lock files stay where they may."""
    with tempfile.TemporaryDirectory() as folder:
        lock = Path(folder, "requirements.lock")
        lock.write_text("".join((ROOT / file).read_text() for file in PURPOSES if (ROOT / file).exists()))
        plain = ["--universal", "--python-version", "3.11", "--generate-hashes", "--no-emit-index-url"]
        command = [sys.executable, "-m", "uv", "pip", "compile", "pyproject.toml", *plain, "--no-header"]
        upgrade = [option for option in sys.argv[1:] if option == "--upgrade"]
        subprocess.run(
            [*command, "--no-annotate", "--quiet", *options, *upgrade, "-o", str(lock)], cwd=ROOT, check=True
        )
        return read_blocks(lock.read_text())


def read_blocks(text: str) -> Blocks:
    """Splits a lock file by package."""
    blocks = re.findall(r"^[A-Za-z0-9].*\n(?:[ \t].*\n)*", text, re.MULTILINE)
    return {block.partition("==")[0]: block for block in blocks}


def known_hashes(block: str) -> set[str]:
    """The hashes that today's lock file has for the same version, such as a CPU build's from another machine."""
    file = ROOT / "requirements.lock"
    old = read_blocks(file.read_text()).get("torch", "") if file.exists() else ""
    return set(re.findall(r"sha256:\w+", old)) if old.split()[:1] == block.split()[:1] else set()


def cpu_hash(block: str) -> set[str]:
    """The hash of torch's CPU build, where this machine's pip would install one. It is asked, and installs nothing."""
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet"]
    done = subprocess.run([*pip, "--report", "-", block.split()[0]], capture_output=True, text=True, check=True)
    (found,) = json.loads(done.stdout)["install"]
    is_cpu = found["metadata"]["version"].endswith("+cpu")
    return {f"sha256:{found['download_info']['archive_info']['hashes']['sha256']}"} if is_cpu else set()


def with_hashes(block: str, more: set[str]) -> str:
    """Adds hashes to a package's block, and sorts them."""
    hashes = sorted(set(re.findall(r"sha256:\w+", block)) | more)
    return " \\\n".join([block.partition(" \\\n")[0], *(f"    --hash={one}" for one in hashes)]) + "\n"


if __name__ == "__main__":
    main()
