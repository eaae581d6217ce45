"""The phrases around a reply's clauses (openers, closings, first-person remarks), and the writing of whole replies.

Nothing here may tell a faithful reply from a hallucinated one. First-person remarks come in pairs that share their
words: one claims an experience or an opinion, its partner asks for the seeker's or declines to have one.
"""

from collections.abc import Sequence
from typing import NamedTuple

from data_modules.embedded.lexicon import Random01, pick

OPENERS = (
    "Good question!", "Sure.", "Happy to help.", "I love it when people ask me that.", "Oh, nice topic!", "Let me see.",
    "Thanks for asking!", "I was hoping you would ask.", "Yes, I have something on that.", "No problem.",
)  # fmt: skip
LEADS = (
    "Well,", "As far as I know,", "From what I read,", "According to my notes,", "In fact,", "Actually,", "I believe",
    "If I am not mistaken,", "My source says that", "People say that", "I think", "You may like to hear that",
)  # fmt: skip
JOINTS = ("Besides, it", "On top of that, it", "What is more, it", "I also found that it", "It", "And it")
TAILS = (
    "Would you like to know more?", "Does that help?", "What else can I tell you?", "Have you heard of it before?",
    "Isn't that something?", "I hope that helps.", "I find that worth knowing.", "That is all I can say on it.",
)  # fmt: skip
IGNORANCE = (
    "I don't know {}, but", "I can't tell you {}, but", "My source does not say {}, but", "I found nothing on {}, but",
    "I am not sure {}, but", "Nobody told me {}, but",
)  # fmt: skip
GENERIC = (
    "That sounds great, tell me more!", "Oh, that is interesting.", "I see what you mean.", "Good question, isn't it?",
    "That is a fun topic to talk about.", "Yes, I agree with you.", "Wow, I did not think of it that way.",
    "It depends, I guess.", "I am not sure what to say to that.", "Thanks, I enjoy talking about this.",
)  # fmt: skip
PERSONAL = (
    ("My sister has one, and she adores it. Does yours?", "Does your sister have one, and adore it? Tell me."),
    ("I would say it is the best of its kind.", "I leave it to you if it is the best of its kind."),
    ("I saw it last summer and was amazed. Did you?", "Did you see it last summer? I wonder if it amazed you."),
    ("I find it rather dull, to be honest.", "I wonder if you find it dull, to be honest."),
    ("I grew up with it, and it means a lot to me. And to you?", "Does it mean a lot to you, and may I ask? Tell me."),
    ("Friends tell me it is a waste of time.", "Tell me if it is a waste of time for you."),
    ("I wonder why anyone would choose another.", "I wonder if you would choose another."),
    ("For my taste there is far too much talk of it.", "Tell me if for your taste there is too much talk of it."),
    ("I went to see it with some friends. Would you?", "Would you go to see it with some friends? I wonder."),
    ("Let me say that it makes everyone happy.", "Let me know if it makes you happy."),
    ("I have loved it since childhood.", "I wonder if you have loved it since childhood."),
    ("My favourite part is the story of it. What is yours?", "What is your favourite part of the story? Let me know."),
    ("I never cared for it much.", "I cannot know if you care for it much."),
    ("I once spent a whole week on it.", "I wonder if you would spend a whole week on it."),
    ("It reminds me of home. And you?", "Does it remind you of home? Tell me."),
    ("I cried when it first came up.", "I wonder if you cried when it first came up."),
)  # fmt: skip
GREETINGS = (
    "Hi! I would like to talk about {}.", "Hello, have you heard of {}?", "My sister told me about {}.",
    "I saw {} last summer and loved it.", "Today I want to learn about {}.",
    "I have been fond of {} since I was a child.",
    "Can you tell me about {}?", "I am curious about {}.",
)  # fmt: skip
REACTIONS = (
    "Interesting!", "I did not know that.", "My friends never told me.", "Oh, I see.", "That is amazing.", "Really?",
    "I love that.", "Hm, I would not have guessed.", "It reminds me of home.", "Thanks!",
)  # fmt: skip


Mark = tuple[int, int, str]  # an unsupported part: start, end, kind of hallucination


class Clause(NamedTuple):
    """A verb phrase of a reply; `start:end` is the part that the knowledge does not support (both 0: none)."""

    text: str
    start: int = 0
    end: int = 0
    kind: str = ""  # of the marked hallucination


class Plan(NamedTuple):
    """The words around the clauses of a reply; a faithful reply and its hallucinated partner share them."""

    opener: str
    lead: str
    subject: str
    tail: str
    joint_choice: float  # from [0, 1): decides how two clauses are joined
    joint: str  # used where they become two sentences


def draw_plan(random: Random01, noun: str, full_name: str, unknown_topic: str | None) -> Plan:
    """Draws a plan; `unknown_topic` is an indirect question whose answer the speaker admits not to know."""
    opener = pick(random, OPENERS) if random() < 0.1 else ""
    lead = pick(random, LEADS) if random() < 0.14 else ""
    if unknown_topic:
        lead = pick(random, IGNORANCE).format(unknown_topic)
    roll = random()
    subject = "it" if roll < 0.5 else f"the {noun}" if roll < 0.75 else full_name
    tail = pick(random, TAILS) if random() < 0.1 else ""
    return Plan(opener, lead, subject, tail, random(), pick(random, JOINTS))


def write_reply(plan: Plan, clauses: Sequence[Clause], remark: Clause | None) -> tuple[str, list[Mark]]:
    """Writes a reply, and finds the places of its marks: those of the clauses in order, then the remark's."""
    head = f"{plan.opener} " if plan.opener else ""
    subject = plan.subject
    head += f"{plan.lead} {subject} " if plan.lead else f"{subject[0].upper()}{subject[1:]} "
    parts, marks, length = [head], [], len(head)
    last = len(clauses) - 1
    for i, (text, start, end, kind) in enumerate(clauses):
        if end:
            marks.append((length + start, length + end, kind))
        after = "."
        if i < last:
            after = (
                " and " if plan.joint_choice < 0.5 else ", and it " if plan.joint_choice < 0.7 else f". {plan.joint} "
            )
        parts += (text, after)
        length += len(text) + len(after)
    if remark:
        if remark.end:
            marks.append((length + 1 + remark.start, length + 1 + remark.end, remark.kind))
        parts += (" ", remark.text)
    if plan.tail:
        parts += (" ", plan.tail)
    return "".join(parts), marks
