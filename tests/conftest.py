"""Fixtures for all tests: a cache of their own, and tiny models made once."""

import gc
import logging
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side: more threads each would be slower
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["WANDB_MODE"] = "offline"
# A busy machine is not a fault of what is tested. The fast tests try the same inputs every time, so that a change fails
# them and never luck; `make test-all` looks for new ones.
UNTIMED: dict[str, Any] = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("fast", derandomize=True, max_examples=25, **UNTIMED)
hypothesis.settings.register_profile("random", **UNTIMED)
hypothesis.settings.register_profile("fuzz", max_examples=2000, **UNTIMED)
hypothesis.settings.load_profile("fast")
ROOT = Path(__file__).resolve().parent.parent


@cache
def worker_group(path: str) -> str | None:
    """Names the group of a file whose tests share models or servers, and so run on one worker."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if named := re.search(r'xdist_group\("([\w-]+)"\)', text):
        return named[1]
    return path if 'scope="module"' in text else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Gives the tests of a group to one worker: pytest 9.2 does not pass the groups of `--dist loadgroup` on."""
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return worker_group(nodeid.partition("::")[0]) or nodeid

    return GroupScheduling(config, log)


def pytest_collection_finish() -> None:
    """Leaves modules and tests out of garbage collection, which took a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def session_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of fixtures that outlive a test; no fixture reads or writes the user's."""
    folder = tmp_path_factory.mktemp("faithkit-home")
    os.environ["FAITHKIT_HOME"] = str(folder)
    return folder


@pytest.fixture(autouse=True)
def own_home(monkeypatch: pytest.MonkeyPatch, session_home: Path) -> None:
    """No test reads or writes the user's cache."""
    monkeypatch.setenv("FAITHKIT_HOME", str(session_home))


@pytest.fixture(autouse=True)
def no_command_of_before() -> Iterator[None]:
    """Undoes what a command that was composed in this process leaves: Hydra keeps its overrides for who asks."""
    yield
    if hydra := sys.modules.get("hydra.core.hydra_config"):
        hydra.HydraConfig.instance().cfg = None


@pytest.fixture(autouse=True)
def fresh_log() -> Iterator[None]:
    """Undoes what a script that ran in this process set up for its own log."""
    yield
    log = logging.getLogger("faithkit")
    for handler in list(log.handlers):
        log.removeHandler(handler)
        handler.close()
    log.propagate = True
    log.setLevel(logging.NOTSET)


@pytest.fixture
def no_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key and no proxy of the environment counts."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder with a random BERT of 32 dimensions."""
    from tests.tiny import write_bert

    return write_bert(tmp_path_factory.mktemp("tiny-bert"))


@pytest.fixture(scope="session")
def default_file(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default detector on a tiny encoder."""
    from critic.support.detector import FILE, hash_weights
    from critic.support.word_model import WordModel

    path = tmp_path_factory.mktemp("default") / "tiny.json"
    shipped = WordModel.read(FILE)
    replace(shipped, encoder=str(tiny_bert), encoder_sha256=hash_weights(str(tiny_bert))).write(path)
    return path


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, tiny_bert: Path) -> Path:
    """The folder of a finished run of a tiny critic."""
    from tests.running import SMALL, train_here

    folder = tmp_path_factory.mktemp("runs") / "trained"
    train_here(f"model.weights={tiny_bert}", f"run_dir={folder}", "logger=none", *SMALL)
    return folder


@pytest.fixture(scope="session")
def tagger_options(tiny_bert: Path) -> list[str]:
    """A tagger's training of seconds."""
    from tests.running import SMALL_TAGGER

    return [f"model.weights={tiny_bert}", "logger=none", *SMALL_TAGGER]


@pytest.fixture(scope="session")
def trained_tagger(tmp_path_factory: pytest.TempPathFactory, tagger_options: list[str]) -> Path:
    """The folder of a finished run of a tiny tagger."""
    from tests.running import train_here

    folder = tmp_path_factory.mktemp("runs") / "tagger"
    train_here(f"run_dir={folder}", *tagger_options)
    return folder


@pytest.fixture(scope="session")
def language_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of tiny random models that write, by family."""
    from tests.tiny import write_language_model

    folder = tmp_path_factory.mktemp("language-models")
    return {family: write_language_model(folder / family, family) for family in ("t5", "bart", "gpt2", "llama")}


def _generator(factory: pytest.TempPathFactory, name: str, kind: str, *options: object) -> Path:
    from tests.generation.folders import write_generator

    return write_generator(factory.mktemp(f"generator-{name}"), kind, *options)


@pytest.fixture(scope="session")
def tiny_t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _generator(tmp_path_factory, "t5", "seq2seq")


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _generator(tmp_path_factory, "llama", "causal")


@pytest.fixture(scope="session")
def tiny_controlled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.generation.folders import CONTROL

    return _generator(tmp_path_factory, "controlled", "causal", CONTROL)
