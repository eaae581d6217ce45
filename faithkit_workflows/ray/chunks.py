"""Judges or answers the rows of a benchmark on a Ray cluster, one chunk per call of a worker.

A chunk has the rows that one machine processes together (`save_every_num_rows`), and chunks come back in their order,
so the predictions are those of one machine.
"""

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from faithkit.errors import UserError
from faithkit.inference.decoding import Decoding
from faithkit.records import Example, Prediction
from faithkit_workflows.answering.write_answers import DetectorAnswerer
from faithkit_workflows.detectors.loading import LoadedDetector, describe_detector, load_checkpoint
from faithkit_workflows.ray.cluster import run_on_cluster
from faithkit_workflows.ray.out_folder import MAX_DEATHS, check_same, identify, identify_model
from faithkit_workflows.ray.shard_worker import SAME_VERSION, with_absolute_paths
from faithkit_workflows.settings.engines import RayOptions

if TYPE_CHECKING:
    from faithkit_workflows.answering.strategies import Answerer


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSettings:
    """The settings that all workers get.

    Args:
        config: Of evaluate.py.
        load: Loads the detector or generator, once in each worker.
        identity: Of the command that started the workers; they compare it with theirs.
    """

    config: Mapping[str, Any]
    load: "Callable[[Mapping[str, Any]], Answerer]"
    identity: Mapping[str, Any]


class ChunkWorker:
    """Judges or answers chunks."""

    def __init__(self, settings: ChunkSettings):
        self.settings = settings

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Judges a chunk; returns the answers, or the error."""
        nothing = {"answers": b"", "unlocated": 0, "problem": "", "place": "", "hint": ""}
        try:
            answerer, before = self.answerer, self._unlocated()
            answers = answerer.answer(_unpack(row["examples"]))
        except UserError as error:
            return {**nothing, "problem": error.problem, "place": error.place or "", "hint": error.hint or ""}
        return {**nothing, "answers": pickle.dumps(answers), "unlocated": self._unlocated() - before}

    @cached_property
    def answerer(self) -> "Answerer":
        """Loads the model.

        Raises:
            UserError: It or the code differs from that of the command.
        """
        import torch

        config = self.settings.config
        torch.set_num_threads(config["ray"]["cpus"])
        place = config["checkpoint"]
        here = identify(identify_model(place), {})
        check_same(here, self.settings.identity, "a worker", place=place, hint=SAME_VERSION)
        return self.settings.load(config)

    def _unlocated(self) -> int:
        return int(getattr(getattr(self.answerer, "detector", None), "num_unlocated", 0))


class RayCluster:
    """Replaces a detector or an answerer by workers that judge or answer several chunks in parallel."""

    def __init__(self, config: Mapping[str, Any], load: "Callable[[Mapping[str, Any]], Answerer]"):
        config = with_absolute_paths(config)
        self.options = RayOptions(**config["ray"])
        self.settings = ChunkSettings(
            config=config, load=load, identity=identify(identify_model(config["checkpoint"]), {})
        )
        self.num_unlocated = 0  # of a judge that quotes

    def answer(self, examples: Sequence[Example], advance: Callable[[int], object] | None = None) -> list[Prediction]:
        """Answers one chunk."""
        (answers,) = self.answer_chunks([examples])
        if advance:
            advance(len(examples))
        return answers

    def predict_examples(self, examples: Sequence[Example], *, progress: bool = False) -> Iterator[Prediction]:
        """Judges examples, as a detector does."""
        size = self.settings.config["save_every_num_rows"]
        for answers in self.answer_chunks([examples[at : at + size] for at in range(0, len(examples), size)]):
            yield from answers

    def answer_chunks(self, chunks: Sequence[Sequence[Example]]) -> Iterator[list[Prediction]]:
        """Yields the answers to each chunk, in the order of the chunks.

        Raises:
            UserError: A worker cannot work, or a chunk fails: a benchmark needs all its rows.
        """
        if not chunks:
            return
        rows = [{"examples": pickle.dumps(list(chunk))} for chunk in chunks]
        for result in run_on_cluster(ChunkWorker, self.settings, rows, self.options, max_deaths=MAX_DEATHS):
            if result["problem"]:
                raise UserError(result["problem"], place=result["place"] or None, hint=result["hint"] or None)
            self.num_unlocated += result["unlocated"]
            yield _unpack(result["answers"])


def load_on_cluster(config: Mapping[str, Any]) -> LoadedDetector:
    """Gives the workers of a cluster as the detector that `checkpoint` names."""
    return LoadedDetector(RayCluster(config, _load_judge), describe_detector(config["checkpoint"]))


def answerer_on_cluster(config: Mapping[str, Any]) -> RayCluster:
    """Gives the workers of a cluster as the generator that `checkpoint` names."""
    return RayCluster(config, _load_generator)


def _unpack(packed: bytes) -> Any:
    """Reads what the command and its workers send each other."""
    return pickle.loads(packed)  # noqa: S301 -- of our processes, never a file


def _load_judge(config: Mapping[str, Any]) -> "Answerer":
    return DetectorAnswerer(load_checkpoint(config).detector)


def _load_generator(config: Mapping[str, Any]) -> "Answerer":
    from faithkit_workflows.answering.strategies import OwnAnswer
    from generation.generator import Generator

    generator = Generator.load(config["checkpoint"], precision=config["precision"], max_length=config["max_length"])
    return OwnAnswer(generator, Decoding(**config["decoding"]))
