"""The block `retrieval`: knowledge for examples that have none."""

from dataclasses import dataclass

from faithkit.settings.check import check_fields
from faithkit.settings.types import Count, PathText


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalOptions:
    """The block `retrieval` of evaluate.py; without a path nothing is looked for.

    Args:
        path: A folder of texts, one text, or `embedded`.
        num_passages: That an example gets, at most.
    """

    path: PathText | None = None
    num_passages: Count = 3

    def __post_init__(self) -> None:
        check_fields(self, "retrieval")
