"""Compares a layer with PyG's: the same numbers at the start, the same outputs, the same gradients."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")


class Graph(NamedTuple):
    """A small graph with everything that can be odd about one."""

    edge_index: Any
    num_sources: int
    num_targets: int


@pytest.fixture
def square_graph() -> Graph:
    """12 nodes: 11 isolated, 10 without in-edges, 9 without out-edges, duplicate edges, self loops."""
    generator = torch.Generator().manual_seed(3)
    sources = torch.randint(0, 9, (40,), generator=generator)
    targets = torch.randint(0, 9, (40,), generator=generator)
    extra = torch.tensor([[10, 10, 0, 0, 4, 5, 4], [3, 9, 1, 1, 4, 5, 4]])
    edge_index = torch.cat([torch.stack([sources, targets]), extra], dim=1)
    return Graph(edge_index[:, torch.randperm(47, generator=generator)], 12, 12)


@pytest.fixture
def bipartite_graph() -> Graph:
    """9 sources and 7 targets: source 8 and target 6 isolated, duplicate edges."""
    generator = torch.Generator().manual_seed(4)
    sources = torch.randint(0, 8, (30,), generator=generator)
    targets = torch.randint(0, 6, (30,), generator=generator)
    edge_index = torch.stack([sources, targets])
    return Graph(torch.cat([edge_index, edge_index[:, :3]], dim=1), 9, 7)


@pytest.fixture
def same() -> Callable[..., None]:
    """Asserts that two layers agree: parameters, outputs, and gradients of parameters and inputs."""

    def check(theirs: Any, ours: Any, inputs: list[Any], **arguments: Any) -> None:
        assert list(ours.state_dict()) == list(theirs.state_dict())
        names = [name for name, _ in theirs.named_parameters()]
        assert [name for name, _ in ours.named_parameters()] == names
        for (name, mine), (_, yours) in zip(ours.named_parameters(), theirs.named_parameters()):
            assert torch.equal(mine, yours), f"initial {name}"
        mine, yours = run(ours, inputs, arguments), run(theirs, inputs, arguments)
        double = yours["out"].dtype == torch.float64
        tolerance = 1e-10 if double else 1e-5
        scale = max([float(v.abs().max()) for k, v in yours.items() if k.startswith("grad ") and v.numel()] + [0])
        assert mine.keys() == yours.keys()
        for key, value in yours.items():
            if key == "edge_index":
                assert torch.equal(mine[key], value)
                continue
            assert mine[key].shape == value.shape, key
            assert mine[key].dtype == value.dtype, key
            if value.numel() == 0:
                continue
            # A gradient may vanish by cancellation; what rounding leaves of it is judged by the others.
            size = scale if key.startswith("grad ") else float(value.detach().abs().max())
            error = float((mine[key] - value).detach().abs().max())
            assert error <= tolerance * size + 1e-30, f"{key}: error {error}, size {size}"

    return check


def run(layer: Any, inputs: list[Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Everything a layer computes, forward and backward."""
    layer.zero_grad()
    leaves: list[Any] = []

    def leaf(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(leaf(item) for item in value)
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.layout == torch.strided:
            leaves.append(value.clone().requires_grad_())
            return leaves[-1]
        return value

    result = layer(*[leaf(value) for value in inputs], **arguments)
    computed = {}
    out, weights = result if isinstance(result, tuple) else (result, None)
    computed["out"] = out
    generator = torch.Generator().manual_seed(9)
    loss = (out * torch.randn(out.shape, generator=generator, dtype=out.dtype)).sum()
    if weights is not None:
        computed["edge_index"], computed["weights"] = weights
        shape = weights[1].shape
        loss = loss + (weights[1] * torch.randn(shape, generator=generator, dtype=out.dtype)).sum()
    if loss.requires_grad:
        loss.backward()
    for name, parameter in layer.named_parameters():
        grad = parameter.grad
        computed[f"grad {name}"] = torch.zeros_like(parameter) if grad is None else grad.clone()
    for number, value in enumerate(leaves):
        computed[f"grad of input {number}"] = torch.zeros_like(value) if value.grad is None else value.grad
    return computed
