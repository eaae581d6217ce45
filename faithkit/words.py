"""English words that any text has, whatever it is about."""


def word_set(text: str) -> frozenset[str]:
    """The words of a text, for tables of them."""
    return frozenset(text.split())


STOP_WORDS = word_set(
    "a an the of in on at to for and or but is are was were be been being it its he she they them his her their this "
    "that these those i you we my your me our us as by with from not no do does did have has had so if than then there "
    "which who whom what when where will would can could"
)
