"""Counts of what a server was asked, and what that cost."""

from dataclasses import dataclass

from faithkit.checks import check_number

MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of a model's tokens, in US dollars per million.

    Args:
        prompt: Of those that it reads.
        new: Of those that it writes.
    """

    prompt: float
    new: float

    def __post_init__(self) -> None:
        check_number("price.prompt", self.prompt, 0, MILLION)
        check_number("price.new", self.new, 0, MILLION)


@dataclass(slots=True, kw_only=True)
class Usage:
    """Counts over the life of an engine; tokens are counted by the server, those of answers of no use too.

    Args:
        sent: Requests that went over the network, retries among them.
        retries: Those of them that were sent once more because the one before failed.
        answered: Requests that have a reply.
        failed: Requests that have a problem instead.
        price: Without it there is no cost.
    """

    sent: int = 0
    retries: int = 0
    answered: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    new_tokens: int = 0
    price: Price | None = None

    @property
    def cost(self) -> float | None:
        """Gives the US dollars at the full price; what the provider takes off, as for cached prompts, is not known."""
        if self.price is None:
            return None
        return (self.prompt_tokens * self.price.prompt + self.new_tokens * self.price.new) / MILLION

    def __str__(self) -> str:
        failed = f", {self.failed:,} failed" if self.failed else ""
        cost = "" if self.cost is None else f", {self.cost:.4f} dollars"
        tokens = f"{self.prompt_tokens:,} tokens read, {self.new_tokens:,} written"
        return f"{self.answered:,} requests answered{failed}, {self.retries:,} retries, {tokens}{cost}"
