"""Phrases and word tables for the synthetic pairs."""

from faithkit.words import word_set

# Phrases before or around a response that claim nothing.
OPENERS = (
    "yes, ", "yeah, ", "yes! ", "yea ", "well, ", "oh, ", "no, ", "right, ", "sure! ", "actually, ", "indeed, ",
    "absolutely! ", "yep. ", "exactly, ", "not really, ", "oh yes, ", "ok, ", "hi! ", "ah, ", "so ",
)  # fmt: skip
WRAPS = (
    "did you know that {}?", "did you know {}?", "i know that {}", "i think {}", "apparently {}", "it is true that {}",
    "yes, i know {}", "well, i believe {}", "i do know that {}", "i read that {}",
)  # fmt: skip

# Claims that no source supports.
PERSONAL = (
    "i love it!", "i love that.", "it is my favorite.", "i have never tried it.", "i used to do that as a kid.",
    "my family loves it.", "i would love to go there some day.", "i have been there once.", "it is so good.",
    "i wish i could do that.", "i really enjoy it.", "my friend told me about it.", "i think it is amazing.",
    "it is a great way to relax.", "they are pretty great!", "i am not a big fan.", "it must be very expensive.",
    "it has been around for a long time.", "i grew up with it.", "that is why it is so popular.",
    "i have been doing it for years.", "i do not know much about it.", "it took a long time to catch on.",
    "people still love it today.", "my dad has one.", "i hear it is very difficult.", "everyone should try it.",
    "it is one of the best in the world.", "i can not imagine that.", "it was really interesting.",
    "i am not sure who did it.", "i saw it last year.", "they are very popular these days.", "it is beautiful.",
)  # fmt: skip
PERSONAL_OPENERS = (
    "i love ", "i really like ", "i have never heard of ", "i am a big fan of ", "my favorite is ", "i used to like ",
    "i have always wanted to see ", "have you ever tried ", "i am not sure about ", "do you like ", "my wife loves ",
    "i do not like ",
)  # fmt: skip
ADDITIONS = (
    "for many years", "in the world", "since the 1980s", "in new york", "because it is cheap", "by most people",
    "every day", "in the 19th century", "and that is why people like it", "than any other", "to this day",
    "as a hobby", "with his brother", "when i was young", "in history",
)  # fmt: skip

# Wordings and others with the same meaning.
SYNONYMS = (
    ("united states", "us"), ("u.s.", "us"), ("approximately", "about"), ("including", "such as"),
    ("usually", "typically"), ("typically", "usually"), ("often", "frequently"), ("many", "a lot of"),
    ("large", "big"), ("located", "situated"), ("several", "multiple"), ("is known as", "is called"),
    ("is called", "is known as"), ("started", "began"), ("began", "started"), ("purchase", "buy"), ("created", "made"),
    ("founded", "established"), ("children", "kids"), ("movie", "film"), ("film", "movie"), ("although", "though"),
    ("commonly", "often"), ("however,", "but"), ("also known as", "also called"), ("various", "different"),
    ("over", "more than"), ("more than", "over"), ("consists of", "is made up of"), ("is based on", "comes from"),
)  # fmt: skip
# Wordings and others that claim more, or the opposite.
DISTORTIONS = (
    ("one of the most", "the most"), ("one of the", "the"), ("may", "always"), ("can be", "is always"),
    ("some", "all"), ("many", "all"), ("most", "all"), ("often", "always"), ("usually", "always"),
    ("sometimes", "always"), ("largest", "smallest"), ("first", "last"), ("more", "less"), ("before", "after"),
    ("early", "late"), ("north", "south"), ("east", "west"), ("high", "low"), ("most", "least"), ("old", "new"),
    ("male", "female"), ("after", "before"), ("increase", "decrease"), ("popular", "unpopular"),
    ("american", "british"), ("british", "american"), ("century", "decade"), ("million", "billion"),
    ("second", "third"), ("late", "early"), ("man", "woman"), ("winter", "summer"), ("father", "brother"),
    ("son", "father"), ("professional", "amateur"),
)  # fmt: skip

NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
ENDINGS = (
    "ing",
    "ed",
    "ly",
    "tion",
    "ous",
    "ist",
    "er",
    "ies",
    "s",
)  # words with the same ending may replace each other
# Words that are never swapped: with another in their place the sentence often means the same.
COMMON = word_set(
    "that this with from have been were which their they more most also into than then when where while about some "
    "such other only many over after before between during known called used made often there these those being would "
    "could"
)
