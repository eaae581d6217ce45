"""Names that configurations choose from, for their checks and for the code that carries the choices out.

Loads nothing: a command line is checked before numpy and torch are imported.
"""

# Strategies of choosing one of several responses by a detector (`faithkit.metrics.suppression`).
FEWEST, NONE, FEWEST_BY_SCORE, NONE_BY_SCORE = ("fewest", "none", "fewest_by_score", "none_by_score")
STRATEGIES = (FEWEST, NONE, FEWEST_BY_SCORE, NONE_BY_SCORE)
GOLD, COPY = RESPONSE_BASELINES = ("gold", "copy")  # the dataset's response, and the knowledge as the response
SELF = "self"
RATE_HISTORIES = (GOLD, SELF)  # turns of the dataset, or of the model itself
RANDOM, UNCERTAINTY = SAMPLING_RULES = ("random", "uncertainty")  # of responses to label; RANDOM is a strategy too
# Of annotation: turns without an answer in the knowledge, and responses as they were before an edit.
UNANSWERABLE, ORIGINAL = ("unanswerable", "original")
ANALYSIS = "analysis"  # the benchmark of RAGTruth that judges nothing
MEASURED, OFFICIAL = CONTROL_SOURCES = ("measured", "official")  # of control tokens: responses, or FaithDial's files
