"""What `torch_private` takes from torch, and no other test shows, does what the package relies on."""

import torch

from axial_transformers.ops import torch_private


def test_transforms_of_torch_func_are_seen_and_nothing_else():
    seen = []

    def watched(x):
        seen.append(torch_private.is_transformed())
        return x.sum()

    torch.func.grad(watched)(torch.ones(3))
    watched(torch.ones(3).requires_grad_()).backward()
    assert seen == [True, False]


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
