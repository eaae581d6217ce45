"""The contrastive objective is what numpy says, and the same as passing each candidate through the model by itself."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from data_modules.encoding.candidate_encoder import CUT, NONE
from generation.objectives.infonce import Contrast, InfoNce
from tests.data_modules.examples import example
from tests.generation.contrast import ROWS, batch_of, loss_of, objective_of, prepared, the_long_way
from tests.generation.steps import step_of
from tests.generation.test_train import assert_metrics_agree
from tests.generation.test_weights import FAMILIES, build
from tests.running import SMALL_GENERATOR, curve, state, train_here, train_in_two

COUNTS = [3, 2, 1, 4]  # candidates of four rows, the gold response counted


def by_hand(objective: InfoNce, query: Any, candidates: Any, rows: Any = range(4)) -> float:
    """The mean over the rows that have a negative, in numpy."""
    found = []
    for place in rows:
        begin = sum(COUNTS[:place])
        own = candidates[begin : begin + COUNTS[place]]
        if len(own) > 1:
            scores = own @ (objective.projection.weight.detach().numpy() @ query[place])
            scores = scores / np.sqrt(query.shape[1]) / objective.options.temperature
            found.append(np.log(np.exp(scores).sum()) - scores[0])
    return float(np.mean(found))


def hand_made(size: int = 6, **options: Any) -> tuple[InfoNce, Any, Any]:
    generator = np.random.default_rng(0)
    objective = objective_of(**options)
    objective.projection = torch.nn.Linear(size, size, bias=False)
    return objective, generator.normal(size=(4, size)), generator.normal(size=(sum(COUNTS), size))


def contrast_step(query: Any, candidates: Any, **values: Any) -> Any:
    row = torch.repeat_interleave(torch.arange(4), torch.tensor(COUNTS))
    output = Contrast(torch.zeros(1), torch.tensor(query).float(), torch.tensor(candidates).float())
    return replace(step_of([[1.0], [2.0], [3.0], [6.0]], candidate_row=row, **values), output=output)


def test_the_value_on_four_rows_is_numpys() -> None:
    objective, query, candidates = hand_made()
    logged: dict[str, torch.Tensor] = {}
    loss = objective(replace(contrast_step(query, candidates), log=logged.__setitem__))
    wanted = by_hand(objective, query, candidates)
    assert logged["contrast"].item() == pytest.approx(wanted, abs=1e-6)
    assert loss.item() == pytest.approx(3.0 + 0.1 * wanted, abs=1e-6)
    step = contrast_step(query, candidates)
    alone = replace(step.output, candidates=step.output.candidates[:4])
    loss = objective(replace(step, batch={**step.batch, "candidate_row": torch.arange(4)}, output=alone))
    loss.backward()
    assert loss.item() == 3.0, "rows without negatives leave the likelihood"
    assert objective.projection.weight.grad.abs().max() == 0


@pytest.mark.parametrize(("projection", "layers"), [("none", 0), ("linear", 1), ("mlp", 2)])
def test_a_projection_has_its_names_layers(projection: str, layers: int, language_models: dict[str, Path]) -> None:
    from transformers import AutoModelForSeq2SeqLM

    objective = objective_of(projection=projection)
    objective.set_up(AutoModelForSeq2SeqLM.from_pretrained(language_models["t5"]), seed=0)
    assert len([*objective.parameters()]) == layers
    size = 6
    _, query, candidates = hand_made(size)
    if projection == "none":
        loss = objective(contrast_step(query, candidates))
        plain = objective_of()
        plain.projection = torch.nn.Linear(size, size, bias=False)
        torch.nn.init.eye_(plain.projection.weight)
        torch.testing.assert_close(loss, plain(contrast_step(query, candidates)))


class Exchange:
    """Processes as threads: each waits for what the others give."""

    def __init__(self, world_size: int, rank: int = 0, shared: tuple[Barrier, dict[int, torch.Tensor]] | None = None):
        self.world_size, self.rank = world_size, rank
        self.barrier, self.given = shared or (Barrier(world_size), {})

    def __getitem__(self, rank: int) -> "Exchange":
        return Exchange(self.world_size, rank, (self.barrier, self.given))

    def gather(self, values: torch.Tensor, *, with_gradients: bool = False) -> torch.Tensor:
        self.given[self.rank] = values if with_gradients else values.detach()
        self.barrier.wait(60)
        found = torch.stack([self.given[rank] for rank in range(self.world_size)])
        self.barrier.wait(60)
        return found

    def total(self, count: torch.Tensor) -> torch.Tensor:
        return self.gather(count).sum(0).clamp(min=1)


@pytest.mark.parametrize("in_batch", [False, True, "all"])
def test_processes_see_each_others_candidates(in_batch: bool | str) -> None:
    objective, query, candidates = hand_made(in_batch=in_batch)
    step = contrast_step(query, candidates)
    sides = [side.requires_grad_() for side in (step.output.query, step.output.candidates)]
    leaves = [objective.projection.weight, *sides]
    rows = torch.tensor([0, 1, 3])  # an odd number: the second process has a row less

    def loss_of_rows(own: torch.Tensor, processes: Any) -> torch.Tensor:
        kept = torch.isin(step.batch["candidate_row"], own)
        row = torch.searchsorted(own, step.batch["candidate_row"][kept])
        output = Contrast(torch.zeros(1), step.output.query[own], step.output.candidates[kept])
        values = {"processes": processes, "candidate_row": row, "num_rows": torch.tensor(len(rows))}
        share = step_of([[float(number)] for number in own], **values)
        return objective(replace(share, output=output))

    whole = loss_of_rows(rows, None)
    crowd = Exchange(2)
    with ThreadPoolExecutor(2) as pool:
        shares = list(pool.map(lambda rank: loss_of_rows(rows[rank::2], crowd[rank]), range(2)))
    mean = torch.stack(shares).mean()
    assert mean.item() == pytest.approx(whole.item(), abs=1e-6)
    wanted = torch.autograd.grad(whole, leaves)
    for found, one in zip(torch.autograd.grad(mean, leaves), wanted, strict=True):
        torch.testing.assert_close(found, one, rtol=0, atol=1e-6)


QUERIES = [("t5", "first_token"), ("t5", "encoder_mean"), ("t5", "decoder_first"), ("bart", "encoder_mean")]
QUERIES += [("bart", "decoder_first"), ("gpt2", None), ("llama", None)]


@pytest.mark.slow
@pytest.mark.parametrize("in_batch", [False, True, "all"])
@pytest.mark.parametrize(("family", "query"), QUERIES)
def test_loss_and_gradients_are_those_of_every_candidate_alone(
    family: str, query: str | None, in_batch: bool | str, language_models: dict[str, Path]
) -> None:
    folder = language_models[family]
    model, objective, encoder = prepared(folder, family, query=query, in_batch=in_batch)
    plain, _ = build(folder, FAMILIES[family], packed=False)
    twin = objective_of(query=objective.query, in_batch=in_batch)
    twin.set_up(plain, 0)
    wanted = the_long_way(plain, twin, encoder)
    loss, _ = loss_of(model, objective, batch_of(encoder))
    torch.testing.assert_close(loss, wanted, rtol=0, atol=1e-5)
    for made in (wanted, loss):
        made.backward()
    ours = [*model.named_parameters(), *objective.named_parameters()]
    theirs = [*plain.parameters(), *twin.parameters()]
    for (name, one), other in zip(ours, theirs, strict=True):
        assert one.grad is not None and other.grad is not None, name
        torch.testing.assert_close(one.grad, other.grad, rtol=0, atol=1e-5)
    assert objective.projection.weight.grad.abs().max() > 1e-5, "the projection is trained"


@pytest.mark.parametrize("in_batch", [False, "all"])
@pytest.mark.parametrize("family", ["t5", "bart", "llama"])
def test_a_padding_row_changes_no_gradient(family: str, in_batch: bool | str, language_models: dict[str, Path]) -> None:
    gradients = []
    for rows, padding in ((ROWS, ()), ([*ROWS, ROWS[0]], (4,))):
        model, objective, encoder = prepared(language_models[family], family, in_batch=in_batch)
        loss, logged = loss_of(model, objective, batch_of(encoder, rows, padding))
        loss.backward()
        of_weights = [weight.grad for weight in (*model.parameters(), objective.projection.weight)]
        gradients.append([loss, *logged.values(), *of_weights])
    torch.testing.assert_close(gradients[0], gradients[1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("family", ["t5", "bart", "gpt2", "llama"])
def test_bf16_is_finite_and_near_fp32(family: str, language_models: dict[str, Path]) -> None:
    model, objective, encoder = prepared(language_models[family], family)
    batch, modules = batch_of(encoder), (model, objective)
    wanted, _ = loss_of(*modules, batch)
    for is_mixed in (True, False):
        with torch.autocast("cpu", torch.bfloat16, enabled=is_mixed):
            loss, _ = loss_of(*(module if is_mixed else module.bfloat16() for module in modules), batch)
        loss.backward()
        assert loss.item() == pytest.approx(wanted.item(), abs=0.05)
        grads = [parameter.grad for module in modules for parameter in module.parameters()]
        assert all(bool(grad.isfinite().all()) for grad in grads if grad is not None)
        for module in modules:
            module.zero_grad()


@pytest.mark.parametrize("family", ["t5", "gpt2"])
def test_negatives_are_counted_cut_and_capped(family: str, language_models: dict[str, Path]) -> None:
    _, _, encoder = prepared(language_models[family], family, num_negatives=2)
    long = replace(ROWS[0], negatives=("it is long " * 40, "no", "yes"))
    counts: Counter[str] = Counter()
    rows = [long, *ROWS[1:], ROWS[2]]
    columns: dict[str, Any] = encoder.encode(rows, counts)
    plain: dict[str, Any] = encoder.turns.encode(rows, Counter())
    lengths = [columns["negative_length"].row(place).tolist() for place in range(5)]
    assert [len(row) for row in lengths] == [2, 1, 0, 2, 0] and lengths[0][0] == 40
    assert (columns["length"] - plain["length"]).tolist() == [sum(row) for row in lengths]
    ends = columns["negative"].values[np.cumsum([n for row in lengths for n in row]) - 1]
    assert set(ends.tolist()) == {encoder.turns.tokenizer.eos_token_id}
    assert counts[CUT] == 1 and counts[NONE] == 2
    assert encoder.fingerprint() != prepared(language_models[family], family)[2].fingerprint()
    if family == "gpt2":  # a negative never makes a causal sequence too long
        full = replace(example(knowledge="x " * 50, response="it is"), negatives=("it is long " * 40,))
        columns = prepared(language_models["llama"], "llama")[2].encode([full], Counter())
        assert len(columns["context"].values) + len(columns["negative"].values) == encoder.turns.layout.max_length


OBJECTIVE = ["objective=infonce", "data.negatives.kinds=[original,verbatim,other]", "objective.num_negatives=2"]


@pytest.fixture(scope="module")
def options(language_models: dict[str, Path]) -> dict[str, list[str]]:
    plain = ["callbacks.log_every_num_steps=1", *SMALL_GENERATOR, *OBJECTIVE]
    models = {"t5": "t5", "gpt2": "gpt2", "llama": "gpt2"}  # by family: places added, and places turned
    return {w: [f"model={m}", f"model.weights={language_models[w]}", *plain] for w, m in models.items()}


@pytest.mark.parametrize("model", ["t5", pytest.param("llama", marks=pytest.mark.slow)])
def test_a_model_learns_to_write_and_to_tell_apart(model: str, options: dict[str, list[str]], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    given = ["model.num_epochs=6", "objective.weight=1", "optimizer.lr=5e-3", "data.num_rows=16"]
    train_here(f"run_dir={folder}", *options[model], *given, "model.validations_per_epoch=0.2")
    losses, contrast = curve(folder), curve(folder, "train/contrast")
    assert np.mean(losses[-3:]) < np.mean(losses[:3]) and np.mean(contrast[-3:]) < np.mean(contrast[:3])
    assert len(curve(folder, "train/contrast_accuracy")) == 12
    counts = json.loads((folder / "metrics.json").read_text())["meta"]["data"]["counts"]["embedded-faithdial/train"]
    assert counts["negatives: verbatim"] > 0 and counts["negatives: original"] > 0
    weights = load_file(folder / "hf" / "model.safetensors")
    assert weights and not any("projection" in name for name in weights), "what helped in training stays behind"


@pytest.mark.slow
@pytest.mark.parametrize("in_batch", ["true", "all"])
@pytest.mark.parametrize("trainer", ["ddp", "fsdp"])
@pytest.mark.parametrize("model", ["t5", "gpt2", "llama"])
def test_two_processes_take_the_steps_of_one(
    model: str, trainer: str, in_batch: str, options: dict[str, list[str]], tmp_path: Path
) -> None:
    plain = [option for option in options[model] if option != "trainer=cpu"]
    plain += [f"objective.in_batch={in_batch}", "objective.weight=1", "data.num_rows=37"]
    train_here(f"run_dir={tmp_path / 'one'}", *plain, "trainer=cpu")
    train_in_two(trainer, tmp_path / "two", *plain)
    assert_metrics_agree(tmp_path / "one", tmp_path / "two")
    for name in ("train/contrast", "train/contrast_accuracy"):
        assert np.isfinite(curve(tmp_path / "two", name)).all()
    projections = [state(tmp_path / name)["objective.projection.weight"] for name in ("one", "two")]
    torch.testing.assert_close(*projections, atol=1e-4, rtol=0)
