"""What `torch_private` takes from torch does what the package relies on: this fails when torch changes it."""

import torch

from axial_transformers.ops import torch_private

SIZES = (3, 5), (7,)


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def test_calls_on_lists_do_what_the_calls_on_tensors_do():
    a, b = [numbers(*size) for size in SIZES], [numbers(*size) + 1 for size in SIZES]
    torch.testing.assert_close(torch_private.lerp_each(a, b, 0.3), [x.lerp(y, 0.3) for x, y in zip(a, b)])
    for in_place, expected in (
        (lambda x: torch_private.lerp_each_in_place(x, b, 0.3), [x.lerp(y, 0.3) for x, y in zip(a, b)]),
        (lambda x: torch_private.add_to_each(x, b, alpha=-2.0), [x - 2 * y for x, y in zip(a, b)]),
        (lambda x: torch_private.multiply_each(x, torch.tensor(0.7)), [x * 0.7 for x in a]),
    ):
        changed = [x.clone() for x in a]
        in_place(changed)
        torch.testing.assert_close(changed, expected)


def test_transforms_of_torch_func_are_seen_and_nothing_else():
    seen = []

    def watched(x):
        seen.append(torch_private.is_transformed())
        return x.sum()

    torch.func.grad(watched)(numbers(3))
    watched(numbers(3).requires_grad_()).backward()
    assert seen == [True, False]


def test_storages_on_the_meta_device_have_keys_and_every_operation_is_dispatched():
    x = torch.zeros(3, device="meta")
    storage, other = x.untyped_storage(), x.clone().untyped_storage()
    assert torch_private.storage_key(storage) == torch_private.storage_key(x.view(-1).untyped_storage())
    assert torch_private.storage_key(storage) != torch_private.storage_key(other)
    seen = []

    class Watch(torch_private.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            seen.extend(each.shape for each in torch_private.tree_leaves([out]))
            return out

    with Watch():
        x.expand(2, 3).split(1)
    assert seen == [(2, 3), (1, 3), (1, 3)]


def test_many_graphs_of_one_function_are_compiled_within_the_context_only():
    """Each size is a graph; by itself torch runs the ninth one uncompiled."""
    graphs = []
    doubled = torch.compile(
        lambda x: 2 * x, dynamic=False, backend=lambda graph, _: graphs.append(graph) or graph.forward
    )
    with torch_private.whole_graphs():
        for size in range(2, 14):
            assert torch.equal(doubled(torch.ones(size)), 2 * torch.ones(size))
    assert len(graphs) == 12
    doubled(torch.ones(20))
    assert len(graphs) == 12, "the limit holds again"
