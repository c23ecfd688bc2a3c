"""The mixture of experts beside the equations of its paper (Shazeer et al. 2017)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.layers import experts
from regard.layers.auxiliary import Auxiliary, collect_auxiliary, rows_before
from regard.layers.dropout import Rows, dropout_rows
from regard.layers.experts import Choice, MixtureOfExperts, NoisyTopKGate, activate, load, squared_variation
from tests.toys import close

ROWS, LENGTH, WIDTH, INNER = 3, 5, 6, 7


@dataclass(frozen=True)
class Options:
    experts: int = 4
    active_experts: int = 2
    expert_capacity: float = 0.0
    importance_weight: float = 0.1
    load_weight: float = 0.1


def layer(activation: str = "relu", **changes: Any) -> MixtureOfExperts:
    """Experts with random weights, also of the gate."""
    torch.manual_seed(1)
    made = MixtureOfExperts(Options(**changes), WIDTH, INNER, activation, "here")
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(std=0.5)
    return made


def tokens(rows: int = ROWS) -> Tensor:
    return torch.randn(rows, LENGTH, WIDTH)


def all_experts(made: MixtureOfExperts, x: Tensor, gates_NE: Tensor) -> Tensor:
    """Every expert on every token, and the sum with these weights: what the layer must not compute."""
    y = torch.zeros_like(x).flatten(0, 1)
    for expert in range(made.experts):
        up, up_bias, down, down_bias = (
            part.chunk(made.experts)[expert]
            for part in (made.up.weight, made.up.bias, made.down.weight, made.down.bias)
        )
        inner = activate(F.linear(x.flatten(0, 1), up, up_bias), made.activation)
        y = y + gates_NE[:, expert, None] * F.linear(inner, down, down_bias)
    return y.view_as(x)


def train(made: MixtureOfExperts, x: Tensor, mask: Tensor | None = None, seed: int = 3) -> tuple[Tensor, Auxiliary]:
    torch.manual_seed(seed)
    with collect_auxiliary() as added:
        return made.train()(x, mask), added


# ---------------------------------------------------------------------------------------------------------------------
# The gate


@torch.no_grad()
def test_the_gate_is_equations_3_to_5() -> None:
    gate, x = NoisyTopKGate(WIDTH, 4, 2).train(), tokens()
    with torch.no_grad():
        gate.weight.normal_()
        gate.noise.normal_()
    torch.manual_seed(5)
    choice = gate(x)
    torch.manual_seed(5)
    normal_BTE = torch.randn(ROWS, LENGTH, 4)
    for row in range(ROWS):
        for place in range(LENGTH):
            token = x[row, place]
            h = [
                float(token @ gate.weight[e] + normal_BTE[row, place, e] * math.log1p(math.exp(token @ gate.noise[e])))
                for e in range(4)
            ]
            first, second = sorted(range(4), key=lambda e: -h[e])[:2]
            share = math.exp(h[first]) / (math.exp(h[first]) + math.exp(h[second]))
            number = row * LENGTH + place
            assert choice.expert_NK[number].tolist() == [first, second]
            assert choice.gate_NK[number].tolist() == pytest.approx([share, 1 - share], abs=1e-5)


def test_there_is_no_noise_in_evaluation() -> None:
    made, x = layer().eval(), tokens()
    assert made.gate(x).noise_NE is None
    assert torch.equal(made(x), made(x))


def test_at_first_noise_alone_chooses_and_all_experts_are_chosen() -> None:
    made = MixtureOfExperts(Options(), WIDTH, INNER, "relu", "here")
    _, added = train(made, torch.randn(10, 50, WIDTH))
    assert added.statistics["here"]["load"] == pytest.approx([0.25] * 4, abs=0.05)


# ---------------------------------------------------------------------------------------------------------------------
# The experts


@pytest.mark.parametrize("activation", ["relu", "gelu", "swish", "swiglu"])
@pytest.mark.parametrize("active", [1, 2, 4])
def test_the_chosen_experts_equal_a_computation_of_all(activation: str, active: int) -> None:
    made, x = layer(activation, active_experts=active), tokens().requires_grad_()
    for training in (False, True):
        torch.manual_seed(3)
        choice = made.train(training).gate(x)
        gates_NE = torch.zeros(ROWS * LENGTH, 4).scatter(1, choice.expert_NK, choice.gate_NK)
        expected = all_experts(made, x, gates_NE)
        torch.manual_seed(3)
        found = made(x)
        close(found, expected)
        direction = torch.randn_like(x)
        wanted = [x, made.up.weight, made.down.bias, *([made.gate.weight] if active > 1 else [])]
        for one, other in zip(
            torch.autograd.grad((found * direction).sum(), wanted),
            torch.autograd.grad((expected * direction).sum(), wanted),
            strict=True,
        ):
            close(one, other)


def test_gradients_are_those_of_finite_differences() -> None:
    """Also of the balance losses, with padding, in double precision."""
    made, x = layer().double(), tokens().double().requires_grad_()
    mask = torch.arange(LENGTH) < torch.tensor([5, 3, 1])[:, None]

    def objective() -> Tensor:
        y, added = train(made, x, mask)
        return y.square().sum() + added.losses[0]

    objective().backward()
    for weight in (x, *made.parameters()):
        assert weight.grad is not None
        direction, step = torch.randn_like(weight), 1e-6
        with torch.no_grad():
            weight.add_(step * direction)
            above = objective()
            weight.sub_(2 * step * direction)
            below = objective()
            weight.add_(step * direction)
        assert (weight.grad * direction).sum().item() == pytest.approx((above - below).item() / (2 * step), rel=1e-5)


def test_an_expert_without_tokens_gets_a_gradient_of_zero() -> None:
    made, x = layer(), tokens()
    with torch.no_grad():
        made.gate.weight.zero_()[0] = x.mean((0, 1)) * 100
        made.gate.noise.fill_(0)
    y, added = train(made, x.mean((0, 1)).expand(ROWS, LENGTH, WIDTH))
    y.sum().backward()
    assert added.statistics["here"]["load"][0] == 0.5  # every token has it as one of two
    assert made.up.weight.grad is not None
    assert made.up.weight.grad.isfinite().all()
    assert made.eval()(x[:1, :1]).isfinite().all()


def test_padding_takes_no_part() -> None:
    """Neither in the outputs nor in losses, loads and capacity; the tokens themselves get what they get without it."""
    made, x = layer(expert_capacity=1.0), tokens()
    mask = torch.arange(LENGTH) < torch.tensor([5, 3, 1])[:, None]
    other = torch.where(mask[..., None], x, torch.randn_like(x))
    for one, two in zip(train(made, x, mask), train(made, other, mask), strict=True):
        if isinstance(one, Tensor):
            assert torch.equal(one, two)
            assert not one[~mask].any()
        else:
            assert torch.equal(one.losses[0], two.losses[0])
            assert one.statistics == two.statistics
    assert torch.equal(made.eval()(x, mask), made(other, mask))
    close(made(x, mask)[mask], made(x)[mask])


# ---------------------------------------------------------------------------------------------------------------------
# Balance


def test_importance_is_equations_6_and_7() -> None:
    """By hand: the importance of an expert is the sum of its gate values; the loss is w (deviation / mean)^2."""
    made, x = layer(load_weight=0.0, importance_weight=0.3), tokens()
    torch.manual_seed(3)
    choice = made.train().gate(x)
    importance = [0.0] * 4
    for experts_K, gates_K in zip(choice.expert_NK.tolist(), choice.gate_NK.tolist(), strict=True):
        for expert, gate in zip(experts_K, gates_K, strict=True):
            importance[expert] += gate
    mean = sum(importance) / 4
    variance = sum((one - mean) ** 2 for one in importance) / 4
    _, added = train(made, x)
    assert added.losses[0].item() == pytest.approx(0.3 * variance / mean**2, rel=1e-5)
    assert added.statistics["here"]["importance"] == pytest.approx(
        [one / sum(importance) for one in importance], abs=1e-4
    )


def test_load_is_the_probability_of_equation_9() -> None:
    """By hand, for one token: clean logits 1, 0, 2, with noise 1.5, 0.5, 1.0; deviations 1, 0.5, 2; one is active."""
    choice = Choice(
        gate_NK=torch.ones(1, 1),
        expert_NK=torch.tensor([[0]]),
        clean_NE=torch.tensor([[1.0, 0.0, 2.0]]),
        noise_NE=torch.tensor([[1.0, 0.5, 2.0]]),
        top_NK=torch.tensor([[1.5, 1.0]]),
    )
    found = load(choice, torch.tensor([[True, False, False]]))
    # expert 0 must exceed 1.0, the largest of the others; experts 1 and 2 must exceed 1.5
    expected = [0.5, 0.5 * (1 + math.erf(-3 / math.sqrt(2))), 0.5 * (1 + math.erf(0.25 / math.sqrt(2)))]
    assert found[0].tolist() == pytest.approx(expected, abs=1e-6)


@torch.no_grad()
def test_load_is_how_often_an_expert_is_chosen_with_new_noise() -> None:
    """If the noise of one expert is drawn again, it is chosen with this probability."""
    made, x = layer().train(), tokens(1)[:, :1]
    torch.manual_seed(3)
    choice = made.gate(x)
    chosen = torch.zeros(1, 4, dtype=torch.bool).scatter(1, choice.expert_NK, True)
    assert choice.noise_NE is not None
    torch.manual_seed(3)
    logits = choice.clean_NE + torch.randn(1, 1, 4)[0] * choice.noise_NE
    draws = torch.randn(200_000)
    for expert, probability in enumerate(load(choice, chosen)[0].tolist()):
        others = torch.cat([logits[0, :expert], logits[0, expert + 1 :]]).topk(2).values[1]
        redrawn = choice.clean_NE[0, expert] + choice.noise_NE[0, expert] * draws
        assert (redrawn > others).float().mean().item() == pytest.approx(probability, abs=0.005)


def test_if_all_experts_are_active_the_load_is_the_number_of_tokens() -> None:
    _, added = train(layer(active_experts=4, importance_weight=0.0), tokens())
    assert added.losses[0].item() == 0
    assert added.statistics["here"] == {**added.statistics["here"], "load": [0.25] * 4, "dropped": 0.0}


def test_the_squared_variation() -> None:
    assert squared_variation(torch.tensor([1.0, 3.0])).item() == pytest.approx(0.25)
    assert squared_variation(torch.tensor([2.0, 2.0])).item() == 0


# ---------------------------------------------------------------------------------------------------------------------
# Capacity


def test_tokens_beyond_the_capacity_are_dropped_and_counted() -> None:
    """15 tokens, 2 of 4 experts each, half of the equal share: an expert computes its first 4 tokens."""
    made, x = layer(expert_capacity=0.5), tokens()
    torch.manual_seed(3)
    choice = made.train().gate(x)
    gates_NE, seen, dropped = torch.zeros(15, 4), [0] * 4, 0
    for number, (experts_K, gates_K) in enumerate(zip(choice.expert_NK.tolist(), choice.gate_NK, strict=True)):
        for expert, gate in zip(experts_K, gates_K, strict=True):
            if seen[expert] < math.ceil(0.5 * 15 * 2 / 4):
                gates_NE[number, expert] = gate
            else:
                dropped += 1
            seen[expert] += 1
    y, added = train(made, x)
    close(y, all_experts(made, x, gates_NE))
    assert dropped > 10
    assert added.statistics["here"]["dropped"] == pytest.approx(dropped / 30, abs=1e-4)


def test_in_evaluation_no_token_is_dropped() -> None:
    made, x = layer(expert_capacity=0.1).eval(), tokens()
    together = made(x)
    for row in range(ROWS):
        close(made(x[row : row + 1])[0], together[row])
        close(made(x[row : row + 1, 2:3])[0, 0], together[row, 2])


# ---------------------------------------------------------------------------------------------------------------------
# Several processes


@pytest.mark.parametrize("times", [1, 2])
def test_processes_that_share_a_batch_compute_what_one_computes(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise, capacity and losses of the whole batch; the sums over processes are taken from a first pass."""
    total, made = 5, layer(expert_capacity=0.7)
    x = torch.randn(total * times, LENGTH, WIDTH)
    mask = torch.arange(LENGTH) < torch.tensor([5, 3, 1, 4, 2]).repeat(times)[:, None]
    whole, added = train(made, x, mask)
    assert 0 < float(added.statistics["here"]["dropped"]) < 1  # type: ignore[arg-type]
    parts = [Rows.every_nth(total, rank, 2) for rank in range(2)]
    sums: list[Tensor] = []

    def run(rows: Rows) -> tuple[Tensor, Auxiliary]:
        index = rows.repeated(times)
        with dropout_rows(rows):
            return train(made, x[index], mask[index])

    def record(tensor: Tensor, **options: Any) -> None:
        sums.append(tensor.clone())

    # `_balance` reduces four tensors; each depends only on the rows of its process, so two passes give the sums.
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.all_reduce", record)
    monkeypatch.setattr(experts.math, "ceil", lambda value: 1)  # so that both drop tokens, and reduce all four
    for rows in parts:
        run(rows)
    monkeypatch.undo()
    each = len(sums) // 2
    assert each == 4
    reduced = [one + other for one, other in zip(sums[:each], sums[each:], strict=True)]
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    for rows in parts:
        queue = list(reduced)
        monkeypatch.setattr("torch.distributed.all_reduce", lambda tensor, queue=queue: tensor.copy_(queue.pop(0)))
        y, found = run(rows)
        close(y, whole[rows.repeated(times)])
        close(found.losses[0], added.losses[0])
        assert found.statistics == added.statistics


def test_rows_before_the_rows_of_a_process() -> None:
    counts = torch.tensor([[1, 0], [2, 5], [4, 1]])
    assert rows_before(counts).tolist() == [[0, 0], [1, 0], [3, 5]]
