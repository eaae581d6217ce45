"""What a type checker sees of the public names: every argument by both of its names."""

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any, get_overloads

import pytest

import faithkit

PUBLIC = [
    faithkit.Critic.score,
    faithkit.Critic.predict,
    faithkit.Tagger.predict,
    faithkit.Judge.judge,
    faithkit.check,
    faithkit.assert_faithful,
]


@pytest.mark.parametrize("function", PUBLIC, ids=lambda function: function.__qualname__)
def test_context_is_typed_as_knowledge_is(function: Callable[..., Any]) -> None:
    by_name: dict[str, list[tuple[dict[str, Any], Any]]] = {"knowledge": [], "context": []}
    for overload in map(signature, get_overloads(function)):
        types = {name: one.annotation for name, one in overload.parameters.items() if name != "self"}
        name = next(iter(types))
        if "answer" in types:  # also the words of users
            assert name == "context" and overload.parameters["answer"].kind == Parameter.KEYWORD_ONLY
            assert "question" in types
            continue
        assert name == "knowledge" or overload.parameters["response"].kind == Parameter.KEYWORD_ONLY
        by_name[name].append(({"knowledge": types.pop(name)} | types, overload.return_annotation))
    assert by_name["knowledge"] and by_name["context"] == by_name["knowledge"]
