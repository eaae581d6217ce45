"""Keeps language models loaded from step to step, where steps ask the same ones in turn."""

import gc
from collections import OrderedDict
from collections.abc import Callable

from faithkit.inference.request_cache import CachedEngine
from faithkit.inference.text import TextEngine
from faithkit.inference.text_engines import OPENAI, EngineOptions, build_text_engine

Build = Callable[[EngineOptions], TextEngine]


class KeptEngines:
    """Builds engines, and gives one that was built before again; the longest unused one is let go first.

    A server's engine is built anew: it costs nothing, and counts what each step uses.

    Args:
        places: Models on this machine that are held at a time: two sides of a dialogue.
    """

    def __init__(self, build: Build = build_text_engine, places: int = 2):
        self.build, self.places = build, places
        self._kept: OrderedDict[EngineOptions, TextEngine] = OrderedDict()

    def __call__(self, options: EngineOptions) -> TextEngine:
        """Gives the engine of the options."""
        if options.name == OPENAI:
            return self.build(options)
        engine = self._kept.pop(options, None)
        while engine is None and len(self._kept) >= self.places:
            self._kept.popitem(last=False)
            gc.collect()  # its memory is needed now
        self._kept[options] = engine = engine or self.build(options)
        if not isinstance(engine, CachedEngine):
            return engine
        return CachedEngine(engine.engine, engine.path, commit_every=engine.commit_every)  # with counts of its own
