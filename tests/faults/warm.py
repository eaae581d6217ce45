"""Runs scripts in children of one process that has imported everything, and ends them at a chosen file event.

A training takes seconds to import what it needs; a fork takes none. `python -m tests.faults.warm` reads one job a line
from its input (JSON: script, overrides, folder, log, kill_at, is_plain_user) and answers each with its exit code.
"""

import ctypes
import json
import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
NAMES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate")
# What can be started: the module with `run`, the command line of the script.
SCRIPTS = {name: f"workflows.{name}" for name in ("train", "evaluate", "generate", "score", "export")}

IMPORTS = (
    "hydra",
    "transformers.models.bert.modeling_bert",
    "transformers.models.llama.modeling_llama",
    "critic.export",
    "critic.task",
    "data_modules.build",
    "faithkit.evaluation.reports.run",
    "faithkit.training.loggers",
    "faithkit.training.task",
    "faithkit.training.trainer",
    "generation.generator",
    "workflows.detection_benchmark",
    "workflows.detectors",
    "workflows.generate",
    "workflows.response_benchmark",
)


def watch(root: str, log: str, kill_at: int | None) -> None:
    """Counts every change of a file or name below `root`, and ends the process before the one with this number.

    An fsync, and half of a write that goes past Python's buffers, are events too.
    """
    write, fsync = os.write, os.fsync
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    count = 0

    def event(name: str, path: Any) -> bool:
        nonlocal count
        count += 1
        write(handle, f"{name} {path}\n".encode(errors="replace"))
        return count == kill_at

    def end() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def hook(name: str, args: tuple[Any, ...]) -> None:
        if name not in NAMES and not (name == "open" and isinstance(args[2], int) and args[2] & WRITING):
            return
        path = str(args[0])
        # Names relative to an open folder are those of a tree that is being deleted.
        if (path.startswith(root) or (name in ("os.remove", "os.rmdir") and args[1] != -1)) and event(name, path):
            end()

    def named(file: int) -> str:
        return os.readlink(f"/proc/self/fd/{file}")  # noqa: PTH115

    def watched_fsync(file: int) -> None:
        if named(file).startswith(root) and event("fsync", named(file)):
            end()
        fsync(file)

    def watched_write(file: int, data: Any) -> int:
        if named(file).startswith(root) and event("write", named(file)):
            write(file, bytes(data)[: len(data) // 2])
            end()
        return write(file, data)

    os.fsync, os.write = watched_fsync, watched_write
    sys.addaudithook(hook)


def give_up_privileges() -> None:
    """Makes root subject to the modes of files, as every other user is."""
    header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()  # version 3 of capset; no capability
    if ctypes.CDLL(None, use_errno=True).capset(header, data):
        raise OSError(ctypes.get_errno(), "capset")


def child(job: dict[str, Any]) -> None:
    """Takes the place of the command `python SCRIPT.py OVERRIDES`."""
    folder = Path(job["folder"])
    output = os.open(folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.chdir(folder)
    for variable, name in (("FAITHKIT_HOME", "home"), ("TMPDIR", "tmp")):
        (folder / name).mkdir(exist_ok=True)
        os.environ[variable] = str(folder / name)
    sys.argv = [f"{job['script']}.py", *job["overrides"]]
    if job["is_plain_user"]:
        give_up_privileges()
    watch(str(folder) + os.sep, job["log"], job["kill_at"])
    import_module(SCRIPTS[job["script"]]).run()


def main() -> None:
    """Imports, says so, and takes jobs until its input ends."""
    import_everything()
    print("ready", flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        process = os.fork()
        if process == 0:
            code = 0
            try:
                child(job)
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
            except BaseException:
                import traceback

                traceback.print_exc()
                code = 1
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def import_everything() -> None:
    """Imports what the scripts import on their way; starts no thread, which a fork would lose."""
    for name in IMPORTS:
        import_module(name)
    import torch

    torch.set_num_threads(1)


if __name__ == "__main__":
    main()
