"""What a type checker sees of the public names: one result for one response, and every argument by all of its names."""

from collections.abc import Callable, Iterable
from inspect import Parameter, signature
from typing import Any, Unpack, get_overloads

import pytest

import faithkit
from faithkit.arguments import ALIASES, ManyResponses, OneResponse
from faithkit.records import Prediction

PUBLIC = [faithkit.Critic.score, faithkit.Critic.predict, faithkit.Tagger.predict, faithkit.Judge.judge, faithkit.check]


@pytest.mark.parametrize("function", PUBLIC, ids=lambda function: function.__qualname__)
def test_one_response_has_a_prediction_and_a_list_a_list(function: Callable[..., Any]) -> None:
    positional, by_name = {}, {}
    for overload in map(signature, get_overloads(function)):
        kinds = {one.kind: one.annotation for one in overload.parameters.values()}
        if "response" in overload.parameters:
            assert "question" in overload.parameters
            positional[overload.parameters["response"].annotation] = overload.return_annotation
        elif "messages" in overload.parameters:
            assert overload.return_annotation == list[Prediction]  # one for each turn
        else:
            by_name[kinds[Parameter.VAR_KEYWORD]] = overload.return_annotation
    several = Iterable[str] if function is faithkit.check else list[str]
    assert positional == {str: Prediction, several: list[Prediction]}
    assert by_name == {Unpack[OneResponse]: Prediction, Unpack[ManyResponses]: list[Prediction]}


@pytest.mark.parametrize("names", [OneResponse, ManyResponses])
def test_arguments_are_typed_by_all_of_their_names(names: type) -> None:
    types = names.__annotations__
    assert set(types) == {"history", "question", *ALIASES, *ALIASES.values()}
    assert all(types[alias] == types[name] for alias, name in ALIASES.items())
