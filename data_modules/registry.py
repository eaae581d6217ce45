"""Every dataset by its name: the one place that knows them all."""

from data_modules.datasets.audit import Audit
from data_modules.datasets.begin import Begin
from data_modules.datasets.cmu_dog import CmuDog
from data_modules.datasets.conjnli import ConjNli
from data_modules.datasets.decode import Decode
from data_modules.datasets.dnli import DialogueNli
from data_modules.datasets.faithcritic import FaithCritic
from data_modules.datasets.faithdial import FaithDial
from data_modules.datasets.mnli import Mnli
from data_modules.datasets.ragtruth import RagTruth
from data_modules.datasets.snli import Snli
from data_modules.datasets.span_rows import SpanRows
from data_modules.datasets.topical_chat import TopicalChat
from data_modules.datasets.wow import WizardOfWikipedia
from data_modules.datasets.xsum_tokens import XsumTokens
from data_modules.embedded.corpus import Embedded
from data_modules.reading.dataset import Source
from data_modules.weak.dropped import DroppedSupport
from data_modules.weak.wow import WeakWow

SOURCES: dict[str, type[Source]] = {
    "embedded": Embedded,
    "faithdial": FaithDial,
    "faithcritic": FaithCritic,
    "wow": WizardOfWikipedia,
    "cmu_dog": CmuDog,
    "topical_chat": TopicalChat,
    "begin": Begin,
    "audit": Audit,
    "mnli": Mnli,
    "snli": Snli,
    "conjnli": ConjNli,
    "dnli": DialogueNli,
    "decode": Decode,
    "ragtruth": RagTruth,
    "xsum_tokens": XsumTokens,
    "spans": SpanRows,
    "weak_wow": WeakWow,
    "dropped_support": DroppedSupport,
}
