"""Runs a class over rows on a Ray cluster; Ray Data does placement, restarts, retries and back-pressure.

A worker is an actor that gets one row per call. When a worker or its node dies, Ray restarts it or gives its row to
another.
"""

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from faithkit.errors import UserError, shorten
from faithkit_workflows.settings.engines import RayOptions

STORE = 100_000_000  # bytes of the object store of a local Ray; only names and counts pass through it
MAX_BLOCKS = 10_000  # above, one task has several shards; finished ones are skipped when it is retried
GIB = 2**30


def run_on_cluster(
    worker: type,
    argument: Any,
    rows: Sequence[Mapping[str, Any]],
    options: RayOptions,
) -> Iterator[Any]:
    """Yields the results of the rows as they finish.

    Args:
        worker: A class; each worker makes an object of it with the argument, and calls it with rows.
        rows: Items of work. Their results are stored, so workers may be restarted any number of times.

    Raises:
        UserError: The cluster does not answer or has too few resources, a worker cannot start.
    """
    with connected(options) as ray:
        from ray.data import ActorPoolStrategy, DataContext

        context = DataContext.get_current()
        context.enable_progress_bars = context.print_on_execution_start = False
        gpus = _gpus(ray, options)
        size = min(_room(ray, options, gpus), len(rows))
        most = size if options.workers else None  # a cluster may grow
        # The pool may shrink to one worker: idle ones make room for one that died with its node.
        pool = ActorPoolStrategy(min_size=1, max_size=most, initial_size=size, max_tasks_in_flight_per_actor=1)
        memory = int(options.memory_gb * GIB) if options.memory_gb else None
        results = ray.data.from_items(list(rows), override_num_blocks=min(len(rows), MAX_BLOCKS)).map(
            worker,
            fn_constructor_args=[argument],
            compute=pool,
            num_cpus=options.cpus,
            num_gpus=gpus or None,
            memory=memory,
        )
        try:
            yield from results.iter_rows()
        except ray.exceptions.RayActorError as error:
            reason = [line for line in str(error).splitlines() if line.strip()][-1]
            hint = "see that every node has this faithkit and its extra ray"
            raise UserError(f"a worker cannot start: {shorten(reason, 200)}", hint=hint) from error


@contextmanager
def connected(options: RayOptions) -> Iterator[Any]:
    """Connects to a cluster, or starts a local one that ends with this process; reuses an open connection.

    Raises:
        UserError: The cluster does not answer.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would send usage data
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # internal warnings
    import ray
    import ray.data

    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # it raises the errors that it logs
    if ray.is_initialized():  # by the caller
        yield ray
        return
    address = options.address or os.environ.get("RAY_ADDRESS") or "local"
    local: dict[str, Any] = {}
    if address == "local":
        cpus = options.workers * options.cpus if options.workers else None
        local = {"num_cpus": cpus, "object_store_memory": STORE, "include_dashboard": False}
    elif address != "auto":
        _check_answer(address, options.timeout_seconds)
    with _keep_signals():
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **local)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise _no_answer(address, shorten(str(error).splitlines()[0], 200)) from error
    try:
        yield ray
    finally:
        ray.shutdown()


@contextmanager
def _keep_signals() -> Iterator[None]:
    """Restores the handler of SIGTERM, which Ray replaces by one that ends the process at once."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, before)


def _check_answer(address: str, timeout: float) -> None:
    """Asks an address for the state of its cluster: `ray.init` would wait for minutes, and then end the process."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout).close()
    except OSError as error:
        raise _no_answer(address, str(error)) from error
    command = [sys.executable, "-m", "ray.scripts.scripts", "status", "--address", address]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired as error:
        raise _no_answer(address, f"no answer in {timeout:g} s") from error
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
        raise _no_answer(address, shorten(lines[-1], 200))


def _no_answer(address: str, reason: str) -> UserError:
    hint = "see `ray status` on its head; without ray.address the command uses this machine"
    return UserError(f"no Ray cluster answers at {address}: {reason}", hint=hint)


def _gpus(ray: Any, options: RayOptions) -> float:
    if options.gpus is not None:
        return options.gpus
    return 1.0 if ray.cluster_resources().get("GPU") else 0.0


def _room(ray: Any, options: RayOptions, gpus: float) -> int:
    """Counts the workers that fit on the nodes.

    Raises:
        UserError: Fewer fit than are needed.
    """
    needs = {"CPU": options.cpus, "GPU": gpus, "memory": (options.memory_gb or 0) * GIB}
    wanted = {name: amount for name, amount in needs.items() if amount}
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    room = sum(min(int(node.get(name, 0) / amount) for name, amount in wanted.items()) for node in nodes)
    least = options.workers or 1
    if room >= least:
        return options.workers or room
    shown = {
        name: f"{amount / GIB:.1f} GiB of memory" if name == "memory" else f"{amount:g} {name}"
        for name, amount in wanted.items()
    }
    problem = f"the cluster has room for {room} workers of {', '.join(shown.values())}, and {least} are needed"
    best = max((node.get("memory", 0) / GIB for node in nodes), default=0)
    hint = (
        f"ray.workers={room}" if room else f"lower ray.cpus, ray.gpus or ray.memory_gb: a node has up to {best:.1f} GiB"
    )
    raise UserError(problem, hint=hint)
