"""Published figures that only the papers' tables need: sizes of corpora, people's scores, generators, rates.

Files and corrections are as in faithkit/published/figures.py, which has the figures of detectors and judges; the
checksum of all files here is pinned by tests/faithkit_papers/test_published.py.
"""

from functools import cache
from pathlib import Path

from faithkit.published.figures import PublishedTable, published_table, read_table

FOLDER = Path(__file__).with_name("published")
CHECKSUMS = {  # SHA-256
    "diahalu_counts": "c4a5c2b90efe6b5ec35295c5f64cd240ba5acfde8540e9b6a86956432785ce57",
    "diahalu_sizes": "da8c8aea860f968d923e2c62664f3ed7daeaef1c9bc4a934445b732405d28c8f",
    "faithdial_begin": "3b632b548a56c3b3408c194bed3c6ac4cbf8b31aa81fd10e785c9ad19bedaee2",
    "faithdial_edits": "b96a75c88ba6b27966bf2d203fa9d66f4e549deee306e0c17457ef72fee6b1d2",
    "faithdial_fallback": "861090eee1243cefcf571c5ca3ec5bb022d28dfd0ee0f9b165b3ee4458976a43",
    "faithdial_generation": "383ac19fb076c2659b6ce4080755fecf884d1ab07bdc902f5e8e663d05352dcb",
    "faithdial_human": "fed6a1ef7bb86a0c9fcb2d197e2bc801319d410061583476c98f6f004a1361d8",
    "faithdial_sizes": "ec2919c30bb40be51ace12107444d061efdcc758025110aba91bb0f3e397364d",
    "faithdial_unanswerable": "f53d6e93ec0490fa8e0667670d795822f928a8150b23843b34937bd843233784",
    "faithdial_validation": "b8466ef6d9f181ea64aacd7811ee5396c107258debe8fdfd6fcac347604a38db",
    "faithdial_zero_shot": "c58a963920657863de77bad319b55c202a9ff075e8215bda688f0cd07d9087ec",
    "halludial_counts": "cd0f388c1a098f72298383528b32da5423e746db62632b2f111801a0e3322a64",
    "halludial_rates": "4ead93e807d2cbb7e6bbcd4aaf83c4c78a56c56df05221e386546b990db0b684",
    "ragtruth_basic": "e9fa9c28343f227b44d2fc39c4081b021708813d7b2c813785220881d7de6dbd",
    "ragtruth_lengths": "eadc0eaf564299517021e87d619bfb34d73533e9d247f57890707f68e8a5058c",
}


@cache
def paper_table(name: str) -> PublishedTable:
    """Reads a table of the papers by its name, wherever its file is."""
    return read_table(FOLDER / f"{name}.json", CHECKSUMS[name]) if name in CHECKSUMS else published_table(name)
