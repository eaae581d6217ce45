"""Retrieves knowledge for examples that have none, as the block `retrieval` configures."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from data_modules.build import Benchmark
from data_modules.retrieval import Bm25, Retrieved, fingerprint, read_passages, with_retrieved
from faithkit.records import Example
from faithkit_workflows.settings.engines import RetrievalOptions

log = logging.getLogger("faithkit")


def retrieve(config: Mapping[str, Any], examples: Sequence[Example]) -> Retrieved | None:
    """Retrieves passages for the examples; returns None if `retrieval.path` is not set."""
    options = RetrievalOptions(**(config.get("retrieval") or {}))
    if options.path is None:
        return None
    found = with_retrieved(examples, _build_index(options.path), options.num_passages)
    counts = (f"{found.num_found:,}", f"{found.num_without:,}", options.path)
    log.info("retrieval: %s of %s examples without knowledge got passages of %s", *counts)
    return found


def with_knowledge(config: Mapping[str, Any], benchmark: Benchmark) -> Benchmark:
    """Returns the benchmark with the retrieved knowledge, and with the retrieval in its summary."""
    found = retrieve(config, benchmark.examples)
    if found is None:
        return benchmark
    passages = _build_index(config["retrieval"]["path"]).passages
    summary = {"passages": len(passages), "hash": fingerprint(passages)}
    summary |= {"examples_found": found.num_found, "examples_without_knowledge": found.num_without}
    return replace(benchmark, examples=found.examples, summary={**benchmark.summary, "retrieval": summary})


@lru_cache(maxsize=1)
def _build_index(path: str) -> Bm25:
    return Bm25(read_passages(path))
