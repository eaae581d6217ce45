"""Every dataset by its name: the one place that knows them all."""

from data_modules.audit import Audit
from data_modules.begin import Begin
from data_modules.cmu_dog import CmuDog
from data_modules.conjnli import ConjNli
from data_modules.decode import Decode
from data_modules.dnli import DialogueNli
from data_modules.embedded.corpus import Embedded
from data_modules.faithcritic import FaithCritic
from data_modules.faithdial import FaithDial
from data_modules.mnli import Mnli
from data_modules.ragtruth import RagTruth
from data_modules.snli import Snli
from data_modules.source import Source
from data_modules.span_rows import SpanRows
from data_modules.topical_chat import TopicalChat
from data_modules.weak.dropped import DroppedSupport
from data_modules.weak.wow import WeakWow
from data_modules.wow import WizardOfWikipedia
from data_modules.xsum_tokens import XsumTokens

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
