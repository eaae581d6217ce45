"""Damages the cache of a model's replies: what is found is what was written, and what is lost can be added again."""

import random
import shutil
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path

from faithkit.inference.reply_cache import ReplyStore
from faithkit.inference.text import Reply
from tests.faults.campaign import Campaign, Wrong
from tests.faults.mutations import mutate_bytes

NAME = "replies.sqlite"
# Of several pages each, so that the file has some of every kind.
REPLIES = {bytes([i]) * 32: Reply(id="", texts=(f"reply {i} " * 40,), finished=(True,)) for i in range(100)}


@cache
def written(is_open: bool) -> Path:
    """A folder with the file; where a process was killed its log of what it wrote last stands beside it."""
    folder, closed = (Path(tempfile.mkdtemp(prefix="faithkit-replies-")) for _ in range(2))
    with closing(ReplyStore(closed / NAME)) as store:
        for key, reply in REPLIES.items():
            store.add([(key, reply)])
        shutil.copytree(closed, folder, dirs_exist_ok=True)
    return folder if is_open else closed


def attempt(rng: random.Random, folder: Path) -> None:
    """Damages one of its files, finds what it still holds, and adds the rest again, as runs do one after the other."""
    place = Path(shutil.copytree(written(rng.random() < 0.5), folder / "replies"))
    victim = rng.choice(sorted(path for path in place.iterdir() if path.name.startswith(NAME)))
    victim.write_bytes(mutate_bytes(victim.read_bytes(), rng))
    with closing(ReplyStore(place / NAME)) as store:
        for _ in range(3):  # the first may find the file beyond mending, and begin it anew
            found = dict(store.find(list(REPLIES)))
            if any(reply != REPLIES[key] for key, reply in found.items()):
                raise Wrong("another reply than was written")
            if len(found) == len(REPLIES):
                return
            store.add([(key, reply) for key, reply in REPLIES.items() if key not in found])
    raise Wrong("what is added is not found")


CAMPAIGNS = [Campaign("cache of replies", attempt, share=0.5)]
