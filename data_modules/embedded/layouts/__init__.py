"""Writers of the embedded corpus in the official layout of every dataset: each loader is exercised end to end."""

from collections.abc import Callable
from pathlib import Path

from data_modules.embedded.layouts.audit import write_audit
from data_modules.embedded.layouts.begin import write_begin, write_begin_2021
from data_modules.embedded.layouts.contradiction import write_decode, write_dnli
from data_modules.embedded.layouts.faithdial import write_faithdial, write_wow
from data_modules.embedded.layouts.grounded import write_cmu_dog, write_topical_chat
from data_modules.embedded.layouts.nli import write_conjnli, write_mnli, write_snli
from data_modules.embedded.layouts.spans import write_ragtruth, write_spans, write_xsum_tokens
from data_modules.embedded.layouts.wow import write_wow_parlai

# Dataset to writer(folder, num_rows, seed), which returns the folder. Names with a second part are second layouts.
WRITERS: dict[str, Callable[..., Path]] = {
    "faithdial": write_faithdial,
    "faithcritic": write_faithdial,
    "wow": write_wow_parlai,
    "wow_faithdial": write_wow,
    "cmu_dog": write_cmu_dog,
    "topical_chat": write_topical_chat,
    "begin": write_begin,
    "begin_2021": write_begin_2021,
    "audit": write_audit,
    "mnli": write_mnli,
    "snli": write_snli,
    "conjnli": write_conjnli,
    "dnli": write_dnli,
    "decode": write_decode,
    "ragtruth": write_ragtruth,
    "xsum_tokens": write_xsum_tokens,
    "spans": write_spans,
}
