"""Names of weights: folders, names on the hub, and how both are explained when they fail."""

import pytest

from faithkit.errors import UserError
from faithkit.weights import resolve as weights


def test_folders_and_hub_names_pass_through(tmp_path):
    assert weights.resolve(str(tmp_path)) == str(tmp_path)
    for name in ("roberta-large", "meta-llama/Llama-2-7b-hf"):
        assert weights.resolve(name) == name


@pytest.mark.parametrize("name", ["", "no such thing", "./absent", "/absent/it", "~/absent", "a/b/c", "a/"])
def test_what_is_neither_says_what_can_be_named(name):
    with pytest.raises(UserError, match="is not a folder, a local name or a hub name") as caught:
        weights.resolve(name)
    assert "minilm" in str(caught.value)


def test_a_recipe_says_that_it_has_to_be_trained_and_how():
    for load in (weights.resolve, weights.check_available):
        with pytest.raises(UserError, match="no weights to download") as caught:
            load("critic-dialogue")
        assert "faithkit models critic-dialogue" in str(caught.value)


def test_a_folder_whose_name_is_mistyped_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "first").mkdir(parents=True)
    monkeypatch.setattr(weights, "_hub_in_reach", lambda: False)
    with pytest.raises(UserError, match="did you mean runs/first"), weights.loading("runs/frist"):
        pass


def test_a_file_is_no_model(tmp_path):
    (tmp_path / "best.ckpt").touch()
    with pytest.raises(UserError, match="is a file"):
        weights.resolve(str(tmp_path / "best.ckpt"))


def test_a_folder_without_a_model_is_told_apart(tmp_path):
    with pytest.raises(UserError, match="is a folder without a model"), weights.loading(str(tmp_path)):
        pass


def test_a_torn_file_is_explained(tmp_path):
    from transformers import AutoModel

    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "model.safetensors").write_text("torn")
    with pytest.raises(UserError, match="cannot be loaded"), weights.loading(str(tmp_path)) as source:
        AutoModel.from_pretrained(source)


def test_a_hub_out_of_reach_is_noticed_before_the_retries(monkeypatch):
    monkeypatch.setattr(weights, "_hub_in_reach", lambda: False)
    monkeypatch.setattr(weights, "hub_file", lambda name: None)
    name = "sentence-transformers/all-MiniLM-L6-v2"
    with pytest.raises(UserError, match="hub was not reached") as caught, weights.loading(name):
        pytest.fail("loaded")
    assert name in str(caught.value) and "local name minilm" in str(caught.value)
    assert "HF_HOME" in str(caught.value)
    with pytest.raises(UserError, match="did you mean smollm2-135m"), weights.loading("smollm-135m"):
        pass


def test_what_the_hub_answers_is_explained():
    from huggingface_hub import errors

    def raised(kind, cause):
        error = OSError("Can't load it")
        error.__cause__ = cause if isinstance(cause, BaseException) else cause.__new__(cause)
        return str(weights.explain("some/model", error))

    assert "was not reached" in raised(OSError, errors.LocalEntryNotFoundError("offline"))
    assert "is gated" in raised(OSError, errors.GatedRepoError)
    assert "knows no such model" in raised(OSError, errors.RepositoryNotFoundError)
    assert "cannot be loaded: Can't load it" in raised(OSError, ValueError("other"))


def test_the_systems_own_errors_are_left_alone(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(PermissionError), weights.loading(str(tmp_path)):
        raise PermissionError(13, "no")
