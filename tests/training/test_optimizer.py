"""Muon: what it does to a matrix, which matrices it takes, and that Adam takes the others."""

import dataclasses

import pytest
import torch
from torch import nn

from regard import models
from regard.config import TrainSettings
from regard.layers.init import stack
from regard.models import presets
from regard.training.device import clip_gradients
from regard.training.optimizer import CombinedOptimizer, Muon, RowAdagrad, inner_matrices, make_optimizer, orthogonal
from tests.toys import TOYS, build


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4)])
def test_singular_values_become_nearly_equal_and_directions_stay(shape):
    torch.manual_seed(0)
    matrices = torch.randn(3, *shape)
    found = orthogonal(matrices)
    values = torch.linalg.svdvals(found)
    assert values.max() < 1.3  # Jordan et al.'s polynomial ends between 0.7 and 1.2 or so
    assert values.min() > 0.5
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    assert torch.einsum("nri,nrc,nic->ni", u, found, v).min() > 0.5  # along each pair of singular vectors


def test_products_in_bfloat16_go_the_same_way():
    torch.manual_seed(0)
    matrices = torch.randn(3, 16, 24)
    short, whole = orthogonal(matrices, torch.bfloat16).float(), orthogonal(matrices)
    assert (short - whole).norm() < 0.05 * whole.norm()


def test_a_batch_of_matrices_is_treated_as_each_alone():
    torch.manual_seed(0)
    matrices = torch.randn(4, 5, 7)
    together = orthogonal(matrices)
    for number, matrix in enumerate(matrices):
        torch.testing.assert_close(together[number], orthogonal(matrix[None])[0])


def test_a_step_goes_downhill_by_the_rate():
    matrix = nn.Parameter(torch.zeros(4, 4))
    goal = torch.diag(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    optimizer = Muon([(matrix, 1)], rate=0.1, weight_decay=0.0)
    (matrix - goal).square().sum().backward()
    optimizer.step()
    assert torch.linalg.svdvals(matrix.detach()).max() < 0.13  # every direction moves by about the rate
    assert ((matrix * goal).sum() > 0).item()


def test_maps_stacked_in_one_matrix_are_treated_apart():
    torch.manual_seed(0)
    first, second = torch.randn(4, 4), 100 * torch.randn(4, 4)
    whole, apart = nn.Parameter(torch.zeros(8, 4)), nn.Parameter(torch.zeros(4, 4))
    whole.grad, apart.grad = torch.cat([first, second]), first.clone()
    Muon([(whole, 2)], rate=0.1, weight_decay=0.0).step()
    Muon([(apart, 1)], rate=0.1, weight_decay=0.0).step()
    torch.testing.assert_close(whole.detach()[:4], apart.detach())


@pytest.mark.parametrize("arch", sorted(presets("seq2seq")))
def test_embeddings_and_output_stay_with_adam(arch):
    model = build(TOYS[arch])
    inner = {id(matrix) for matrix, _ in inner_matrices(model)}
    names = {name for name, parameter in model.named_parameters() if id(parameter) in inner}
    assert names
    assert not any("embed" in name or name.startswith("output") for name in names)
    assert all(matrix.shape[0] % parts == 0 for matrix, parts in inner_matrices(model))


def test_attention_says_that_query_key_and_value_are_stacked():
    model = build(TOYS["transformer-small"])
    parts = {name: getattr(module, "stacked", 1) for name, module in model.named_modules()}
    assert {parts[name] for name in parts if name.endswith("self_attention.qkv")} == {3}
    assert {parts[name] for name in parts if name.endswith("cross_attention.key_value")} == {2}
    assert stack(nn.Linear(2, 6), 3).weight.shape == (6, 2)


def test_a_convolution_is_a_matrix_with_a_row_per_output():
    sizes = {"picture_channels": 3, "picture_height": 8, "picture_width": 8, "patch_size": 4, "convolutions": 1}
    model = models.build(TOYS["transformer-small"], **sizes, target_vocabulary=9)
    first = model.encoder.embed.input.convolutions[0].weight
    assert any(matrix is first for matrix, _ in inner_matrices(model))
    optimizer = Muon([(first, 1)], rate=0.1, weight_decay=0.0)
    before = first.detach().clone()
    first.grad = torch.randn_like(first)
    optimizer.step()
    change = (first.detach() - before).flatten(1)
    assert torch.linalg.svdvals(change / 0.1).sub(1).abs().max() < 0.5  # as orthogonal as five rounds make it


def test_rates_keep_their_proportion():
    model = build(TOYS["transformer-small"])
    optimizer = make_optimizer(model, TrainSettings(optimizer="muon", learning_rate=2e-3, muon_learning_rate=0.02))
    optimizer.set_rate(1e-3)
    rates = sorted({group["lr"] for part in optimizer._parts for group in part.param_groups})
    assert rates == pytest.approx([1e-3, 0.01])


@pytest.mark.parametrize("kind", ["adam", "muon"])
def test_what_is_remembered_goes_back(kind):
    settings = TrainSettings(optimizer=kind, learning_rate=1e-2)

    def steps(model: nn.Module, optimizer: CombinedOptimizer, count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            sum((parameter * torch.randn_like(parameter)).sum() for parameter in model.parameters()).backward()
            optimizer.step()

    torch.manual_seed(1)
    first = build(TOYS["transformer-small"])
    one = make_optimizer(first, settings)
    steps(first, one, 2)
    second = build(TOYS["transformer-small"], seed=5)
    second.load_state_dict(first.state_dict())
    other = make_optimizer(second, dataclasses.replace(settings))
    for mine, theirs in zip(first.parameters(), second.parameters(), strict=True):
        other.load_state(theirs, {key: value.clone() for key, value in one.state_of(mine).items()})
    for model, optimizer in ((first, one), (second, other)):
        torch.manual_seed(2)
        steps(model, optimizer, 2)
    for mine, theirs in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def adagrad_steps(parameter, gradients, rate=0.5):
    optimizer = RowAdagrad([parameter], rate, 0.0)
    for gradient in gradients:
        parameter.grad = gradient
        optimizer.step()
    return parameter.detach()


def test_adagrad_divides_the_rate_of_a_row_by_its_gradients():
    """By hand: a row of gradients g1, g2 moves by -rate g1 / |g1| - rate g2 / sqrt(|g1|^2 + |g2|^2), |.| the RMS."""
    first, second = torch.tensor([[3.0, 4.0], [0.0, 0.0]]), torch.tensor([[5.0, 0.0], [1.0, 1.0]])
    found = adagrad_steps(nn.Parameter(torch.zeros(2, 2)), [first, second])
    roots = [12.5**0.5, 25**0.5]
    expected = -0.5 * torch.tensor([[3 / roots[0] + 5 / roots[1], 4 / roots[0]], [1.0, 1.0]])
    torch.testing.assert_close(found, expected)


def test_adagrad_with_sparse_gradients_is_adagrad():
    torch.manual_seed(0)
    weight, index = torch.randn(6, 3), torch.tensor([1, 4, 1, 2])
    gradients = [torch.zeros(6, 3).index_add(0, index + shift, torch.randn(4, 3)) for shift in (0, 1)]
    sparse = [
        torch.sparse_coo_tensor(rows[None], gradient[rows] / 2, (6, 3), check_invariants=True)
        for gradient in gradients
        for rows in [gradient.abs().sum(1).nonzero()[:, 0].repeat(2)]  # every row occurs twice
    ]
    found = adagrad_steps(nn.Parameter(weight.clone()), sparse)
    torch.testing.assert_close(found, adagrad_steps(nn.Parameter(weight.clone()), gradients))
    assert torch.equal(found[0], weight[0])


def test_sparse_gradients_are_clipped_as_dense_ones():
    class Table(nn.Module):
        def __init__(self, sparse):
            super().__init__()
            torch.manual_seed(0)
            self.table = nn.Embedding(5, 3, sparse=sparse)

    norms, gradients = [], []
    for sparse in (False, True):
        model = Table(sparse)
        model.table(torch.tensor([1, 3, 1])).square().sum().backward()
        norms.append(clip_gradients(model, 0.1))
        gradient = model.table.weight.grad
        gradients.append(gradient.to_dense() if sparse else gradient)
    assert norms[0] == pytest.approx(norms[1])
    torch.testing.assert_close(*gradients)
    assert gradients[1].norm().item() == pytest.approx(0.1, rel=1e-3)
