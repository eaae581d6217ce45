from critic.sequence.scorer import Critic as Critic
from critic.tagger.predictor import Tagger as Tagger
from data_modules.datasets.pairs import read_pairs as read_pairs
from faithkit_workflows.detectors.assertions import assert_faithful as assert_faithful
from faithkit_workflows.detectors.assertions import check as check
from faithkit_workflows.detectors.cascade import Cascade as Cascade
from generation.generator import Generator as Generator
from judge.judge import Judge as Judge

__all__ = ["Cascade", "Critic", "Generator", "Judge", "Tagger", "assert_faithful", "check", "read_pairs"]
