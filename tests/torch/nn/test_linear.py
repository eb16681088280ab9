"""The linear map inside the layers against PyG's."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from sage_attention.errors import ArgumentError  # noqa: E402
from sage_attention.torch.nn.linear import Linear, matrix  # noqa: E402


@pytest.fixture
def pyg_linear():
    return pytest.importorskip("torch_geometric.nn", reason="compares with PyTorch Geometric").Linear


@pytest.mark.parametrize("in_channels", [1, 2, 3, 7, 64, 1433])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("glorot", [True, False])
def test_same_numbers_from_the_same_seed(pyg_linear, in_channels, bias, glorot):
    torch.manual_seed(1)
    theirs = pyg_linear(in_channels, 5, bias, weight_initializer="glorot" if glorot else None)
    torch.manual_seed(1)
    ours = Linear(in_channels, 5, bias, glorot=glorot)
    for name, value in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], value)
    assert torch.rand(1) is not None


def test_lazy_states_in_both_directions(pyg_linear):
    for one, other in [(Linear, pyg_linear), (pyg_linear, Linear), (Linear, Linear)]:
        lazy, full, empty = one(-1, 4), other(3, 4), one(-1, 4).state_dict()
        lazy.load_state_dict(full.state_dict())
        assert torch.equal(lazy.weight, full.weight)
        assert lazy.in_channels == 3
        full.load_state_dict(empty)
        assert isinstance(full.weight, torch.nn.UninitializedParameter)
        assert full(torch.ones(2, 6)).shape == (2, 4)
        assert full.in_channels == 6


def test_lazy_copy_and_conversion():
    lazy = copy.deepcopy(Linear(-1, 4)).double()
    parameter = lazy.weight
    assert lazy(torch.ones(2, 6, dtype=torch.float64)).shape == (2, 4)
    assert lazy.weight is parameter  # an optimiser keeps working
    assert repr(lazy) == "Linear(6, 4, bias=True)"


def test_refuses_sizes():
    with pytest.raises(ArgumentError, match="in_channels"):
        Linear(-2, 4)


def test_matrix_sees_what_the_module_computes():
    linear = Linear(3, 4, bias=False)
    assert matrix(linear, 3) is linear.weight
    linear.register_forward_hook(lambda _module, _inputs, output: 2 * output)
    assert matrix(linear, 3) is None
    torch.testing.assert_close(matrix(linear, 3, linear.weight), 2 * linear.weight)
    normed = torch.nn.utils.parametrizations.weight_norm(Linear(3, 4, bias=False))
    torch.testing.assert_close(matrix(normed, 3, torch.ones(1)), normed.weight)
