"""A quicker start: transformers without the packages that it imports for a single function."""


def import_transformers() -> None:
    """Imports transformers' models without scikit-learn, scipy and pandas: a second of a first prediction.

    It wants one curve of scikit-learn's for assisted generation, which then sets its threshold without it. Nothing
    happens where these modules are loaded already.
    """
    import sys

    if "transformers.generation.candidate_generator" in sys.modules:
        return
    from transformers import utils

    available = utils.is_sklearn_available
    utils.is_sklearn_available = lambda: False
    try:
        import transformers.generation.candidate_generator  # noqa: F401
    finally:
        utils.is_sklearn_available = available
