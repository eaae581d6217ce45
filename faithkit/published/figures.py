"""Published figures by benchmark, in percent: detectors on RAGTruth, sets of claims and PsiloQA, judges, corpora.

Protocols differ from ours and from each other, so each row names its source. RAGTruth's paper gives precision, recall
and F1 by task in its first version; figures of its revised version, and of other papers, are read in papers that cite
them: the notes in the files list what could be confirmed, and where. HalluDial's paper gives precision and recall as
means over both classes, DiaHalu's those of the hallucinated class.

Each JSON file is one table of one paper, and a file with another checksum is refused. A correction changes the file,
its checksum here, and the one that tests/faithkit/test_published.py pins.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from faithkit.errors import UserError
from faithkit.files.jsonl import read_strict_json

FOLDER = Path(__file__).parent
REPAIR_HINT = "install faithkit again; or, to correct a figure, see faithkit/published/figures.py"
CHECKSUMS = {  # SHA-256
    "aggrefact_leaderboard": "685e5333e0106d1078699268aef331c1513e94b577d2b16bd9012995ef75dbe2",
    "diahalu_cot": "3c42c9e29d5c5b289d6cbb0fce13873deba00e53b6c8225f6242179226e38235",
    "diahalu_detection": "f68eccaf5b5fd8e4501b2e6a126b7f1aed2724020790d3a68bf8f1b2d34fc2ae",
    "faithdial_transfer": "426a075fe2dc6e3d25561be7ccba02b261def91e468a091a320b9f8cc8da5f0f",
    "granite_guardian_true": "090034527eba0b921ece77dc1c5d52f25b47a167d5d03dc991f0f34563760fd6",
    "halludial_agreement": "beccba2bce1ff66c823cd026fd6078a4b48245794515926a11b581cb8c40752e",
    "halludial_comparative": "ad48218cf6244219b5fbd551f2ea4bd10727fb894c539cfc4cd1b820b68530dc",
    "halludial_detection": "a4e1fe0b25ecb808c02e5f20d16aa8cc23aa61d452e283e78b2b143a32b9a6f3",
    "halludial_on_halueval_dialogue": "a411a9302cad34009f7b998850efed7f2554ca957ba4f8ee017a48f32859a3d3",
    "halludial_on_halueval_others": "b02f8032e5c10235357e206a11efc779fcc2bfa4b90ca58692adf757ae3a719f",
    "halludial_rationales": "779f3634ff12b74affa14d2314c4606a8f24790b69b8b847997f7e4718846f5f",
    "halludial_scenarios": "8a3b5479ab502e0feb65c88920a9d38339bd4a197f6fa2252ecb1219ecfd0a82",
    "lettucedetect": "b12762549e092ad13d965a767d55ee311a73a39eca1eb0a5900bc488e01ba295",
    "lettucedetect_v2": "8e0aa4c78b3583deccd67e051792713125bd79763b0b67dc0d23cbb8efa8c16d",
    "lettucedetect_v2_psiloqa": "163bbb6a5d37c38a7ce469ae8b21d66df9ee725695af1d5f4d40aaaebb605681",
    "lettucedetect_v2_sets": "6e5e5431ba5d4440c5380ab9cdb8af9bd3869859c4317d41c7496a48068e62e6",
    "luna": "729c5dc5a7cf2594489acdc03ff9406f220a083ce3702cc61b29539ed3df8f8c",
    "rag_hat": "9fc8760dcce5464ec2b2c784daba372da29e4b25e289af22b90608d7a1ba9872",
    "rag_hat_by_task": "0ebbc6c087a80b33ca47afd814bb41f8401e5baabb5077537baacfef00b01772",
    "ragtruth_models": "3bbde123945b2b321eed46005fbdca1ebe082170cb43a12440ca5dd06d2d50ad",
    "ragtruth_response_level": "ebe828c12594ec74a2d91e602e6b52d7d897da6342e017f1c11523a038c92052",
    "ragtruth_revised": "eaf5b14b2d3b245f8bac6806628ab2df5f3914258689ae3bec8520242baf0395",
    "ragtruth_span_level": "0248d439c94f9da2a483ef7de40e85b1f5a4416c5b7dde2ff65f868ad4ade420",
    "ragtruth_suppression": "83a3f98c394022d253a9d5cee953f514a77f1a91fef7d56f93ae78204964443c",
    "rl4hs": "7d79eb56de0a69a02efeb1ad1d5f28b78e1a4eebb785550dcec58a5bf37cc4b7",
    "true_metrics": "87d5da2e08a3f9bdbb1ad1e47a69d8b746b99b33d6c26838c38931988aebeccb",
}
# Benchmark to tables whose columns are the names of its sets.
SET_TABLES: Mapping[str, Sequence[str]] = {
    "aggrefact": ("aggrefact_leaderboard",),
    "true_sets": ("true_metrics", "granite_guardian_true"),
    "psiloqa": ("lettucedetect_v2_psiloqa",),
    "lettucedetect_code": ("lettucedetect_v2_sets",),
    "lettucedetect_prose": ("lettucedetect_v2_sets",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTable:
    """A table of a paper, as it was printed.

    Args:
        paper: Authors, year and title.
        version: Of the paper, where it has several.
        read_in: Where the figures were read: the paper itself, or one that cites it.
        table: Its number in the paper; None if the figures were not read there.
        protocol: How the figures were measured, where that differs from ours.
        note: What a reader should know of the figures.
        rows: Values by column.
    """

    paper: str
    version: str | None
    read_in: str
    table: str | None
    unit: str
    protocol: str | None
    note: str | None
    rows: tuple[Mapping[str, Any], ...]

    def by(self, *columns: str) -> dict[Any, Mapping[str, Any]]:
        """Gives the rows by the value of a column, or of several, that names them."""
        return {row[columns[0]] if len(columns) == 1 else tuple(row[one] for one in columns): row for row in self.rows}

    @property
    def citation(self) -> str:
        """Names authors, year, version and table, and who cites them where that is not the paper itself."""
        authors_and_year = self.paper.split(",")[0]
        as_cited = None if self.table else f"read in {self.read_in}"
        return ", ".join(part for part in (authors_and_year, self.version, self.table, as_cited) if part)


@cache
def published_table(name: str) -> PublishedTable:
    """Reads one of CHECKSUMS by its name."""
    return read_table(FOLDER / f"{name}.json", CHECKSUMS[name])


def read_table(path: Path, checksum: str) -> PublishedTable:
    """Reads a file of published figures.

    Args:
        checksum: Its SHA-256.

    Raises:
        UserError: It is missing, or its checksum differs.
    """
    values = read_strict_json(path, hint=REPAIR_HINT)
    if hashlib.sha256(path.read_bytes()).hexdigest() != checksum:
        raise UserError("published figures were changed: the checksum differs", place=str(path), hint=REPAIR_HINT)
    columns = values.pop("columns")
    rows = tuple(dict(zip(columns, row, strict=True)) for row in values.pop("rows"))
    return PublishedTable(**values, rows=rows)


TEST_RESPONSES = 450 * 6  # sources, models
TASKS = ("qa", "data2txt", "summary", "")  # "" is overall; the order of the paper's columns
V1, REVISED = "v1", "revised"
# RAGTruth's tables: the source, the level of a table by task and "" for one of both levels over all tasks, the file.
# A mean of tasks is no figure of all responses.
RAGTRUTH_TABLES = (
    *((V1, "response", "ragtruth_response_level"), (V1, "char", "ragtruth_span_level")),
    *(("RAG-HAT", "response", "rag_hat_by_task"), ("RL4HS", "char", "rl4hs")),
    *((REVISED, "", "ragtruth_revised"), ("Luna", "", "luna"), ("RAG-HAT", "", "rag_hat")),
    *(("LettuceDetect", "", "lettucedetect"), ("LettuceDetect v2", "", "lettucedetect_v2")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedDetector:
    """One system's figures at one level of one task, in percent; None if they were not given.

    Args:
        source: A short name of the paper; `table` has all of it.
    """

    system: str
    source: str
    level: str
    task: str
    f1: float
    precision: float | None = None
    recall: float | None = None
    table: PublishedTable

    @property
    def name(self) -> str:
        """Names the system with the source of its figures."""
        return f"{self.system} ({self.source})" if self.source in (V1, REVISED) else self.system

    @property
    def protocol(self) -> str:
        """Cites the paper of the figures and its protocol."""
        return "; ".join(part for part in (self.table.citation, self.table.protocol) if part)


def published_detectors(dataset: str, level: str, task: str = "") -> Sequence[PublishedDetector]:
    """Selects the figures for one level and task ("" is overall), the best F1 first; none for other datasets."""
    rows = []
    for source, of_level, name in RAGTRUTH_TABLES if dataset == "ragtruth" else ():
        table = published_table(name)
        for row in table.rows:
            figures = row
            if not of_level:  # a row has both levels
                shares = {share: row[f"{level}_{share}"] for share in ("precision", "recall", "f1")}
                figures = {"system": row["system"], "task": "", **shares}
            if (of_level or level, figures["task"]) == (level, task) and figures["f1"] is not None:
                rows.append(PublishedDetector(**figures, source=source, level=level, table=table))
    return sorted(rows, key=lambda row: -row.f1)


@cache
def ragtruth_models() -> frozenset[str]:
    """Lists the models that wrote RAGTruth's responses, in lower case."""
    return frozenset(row["model"] for row in published_table("ragtruth_models").rows)


def are_comparable(models: Iterable[object]) -> bool:
    """Checks whether the published figures are about responses of these models."""
    return {str(model).lower() for model in models} <= ragtruth_models()


ALL = "all"
# Benchmark to tables, each with the column that names the part; None if all rows are of one part.
JUDGE_TABLES: Mapping[str, Sequence[tuple[str, str | None, str]]] = {
    "halludial": (("halludial_detection", None, ALL), ("halludial_scenarios", "scenario", "")),
    "halueval": (("halludial_on_halueval_dialogue", None, "dialogue"), ("halludial_on_halueval_others", "task", "")),
    "diahalu": (("diahalu_detection", "domain", ""), ("diahalu_cot", "domain", "")),
}
MEAN_OF_CLASSES = ("halludial", "halueval")  # their tables have means as precision and recall


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeFigures:
    """One system's figures on one part; None if they were not given.

    Args:
        note: The paper and its table, and what was tested.
    """

    system: str
    part: str
    macro_f1: float | None = None
    f1: float | None = None
    faithful_f1: float | None = None
    precision: float | None = None
    recall: float | None = None
    mean_precision: float | None = None
    mean_recall: float | None = None
    accuracy: float | None = None
    note: str


@cache
def judge_figures(benchmark: str, part: str = ALL) -> tuple[JudgeFigures, ...]:
    """Selects the figures of a part, the best first; none for other benchmarks."""
    found = []
    mean = "mean_" if benchmark in MEAN_OF_CLASSES else ""
    for name, column, whole in JUDGE_TABLES.get(benchmark, ()):
        table = published_table(name)
        for row in table.rows:
            if (row[column] if column else whole) == part:
                kept: dict[str, Any] = {n: row.get(n) for n in ("macro_f1", "f1", "faithful_f1", "accuracy")}
                kept |= {f"{mean}{n}": row[n] for n in ("precision", "recall")}
                note = f"{table.citation}: {table.protocol}"
                found.append(JudgeFigures(system=row["system"], part=part, note=note, **kept))
    return tuple(sorted(found, key=lambda row: -max(row.macro_f1 or 0.0, row.f1 or 0.0)))


Row = Mapping[str, Any]


def set_figures(benchmark: str) -> list[tuple[Row, PublishedTable]]:
    """Gives each system's figures by set, with their table; none for other benchmarks."""
    tables = [published_table(name) for name in SET_TABLES.get(benchmark, ())]
    return [(row, table) for table in tables for row in table.rows]
