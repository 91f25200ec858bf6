"""A stand-in for the quantised weights of torchao."""

import copy

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map


class Quantised(Tensor):
    """A weight of 8 bits and a step, without memory of its own, as those of torchao."""

    @staticmethod
    def __new__(cls, numbers, step):
        return Tensor._make_wrapper_subclass(cls, numbers.shape, dtype=step.dtype)

    def __init__(self, numbers, step):
        self.numbers, self.step = numbers, step

    def __tensor_flatten__(self):
        return ["numbers", "step"], None

    @classmethod
    def __tensor_unflatten__(cls, inner, *_):
        return cls(**inner)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.detach.default:
            return cls(args[0].numbers, args[0].step)
        if function in (torch.ops.aten.abs.default, torch.ops.aten.clone.default, torch.ops.aten.new_empty.default):
            raise NotImplementedError(function)
        return function(*tree_map(whole, args), **(kwargs or {}))


def whole(x):
    return x.numbers * x.step if isinstance(x, Quantised) else x


def quantised(model):
    """A copy with quantised linear layers, and one with the numbers that these stand for."""
    small, plain = copy.deepcopy(model), copy.deepcopy(model)
    for layer, same in zip(small.modules(), plain.modules(), strict=True):
        if isinstance(layer, nn.Linear):
            step = layer.weight.detach().abs().max() / 127
            weight = Quantised((layer.weight.detach() / step).round().to(torch.int8), step)
            layer.weight = nn.Parameter(weight, requires_grad=False)
            same.weight.data = whole(weight)
    return small, plain
