"""Examples from a data set of one's own: an array, a torch Dataset, a list."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.examples import Examples, GrowingArray


class Dataset(Protocol):
    """A data set with a length, such as a torch Dataset, an array or a list."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


def examples_from(dataset: Dataset, num_values: int = 256) -> Examples:
    """Reads a data set once into memory, to train on it.

    Args:
        dataset: item i is x, or the pair (x, label). x is an array, a tensor or a Pillow image of integers
            0 ... num_values - 1: [*A, C], channels last, or [H, W] of a gray Pillow image. The label is an integer.
            Classes have the names in `dataset.classes`, if there are any.
        num_values: number of values that a site can take, at most 256.

    Raises:
        TypeError: a data set without a length, or values that are no integers.
        ValueError: no items, values out of range, or items that differ in shape or in having labels.
    """
    if not hasattr(dataset, "__len__"):
        raise TypeError(f"dataset must have a length, as a torch Dataset has, not be a {type(dataset).__name__}")
    if not len(dataset):
        raise ValueError("dataset has no items")
    stack, labels = GrowingArray(), []
    for i in range(len(dataset)):
        item = dataset[i]
        x, label = item if isinstance(item, tuple) else (item, None)
        stack.add(_example(x, i, num_values, stack.shape)[None])
        labels.append(label)
    classes = _classes(labels)
    names = None
    if classes is not None:
        given = [str(name) for name in getattr(dataset, "classes", ())]
        names = tuple(given + [str(i) for i in range(len(given), int(classes.max()) + 1)])
    return Examples(
        values=stack.values(),
        names=[str(i) for i in range(len(labels))],
        labels=classes,
        class_names=names,
        num_values=num_values,
    )


def _example(x: Any, index: int, num_values: int, shape: tuple[int, ...] | None) -> NDArray[np.uint8]:
    """One example [*A, C], checked."""
    array = np.asarray(x)
    if array.ndim == 2 and hasattr(x, "getbands"):
        array = array[..., None]
    if array.dtype.kind not in "bui":
        raise TypeError(
            f"dataset[{index}] holds {array.dtype} values, not integers 0..{num_values - 1}: leave out transforms such "
            "as ToTensor, or round its values"
        )
    if array.ndim < 2 or array.shape != (shape or array.shape):
        wanted = "[*A, C], channels last" if shape is None else f"{list(shape)} as dataset[0]"
        raise ValueError(f"dataset[{index}] has shape {list(array.shape)}, not {wanted}")
    if array.size and not 0 <= array.min() <= array.max() < min(num_values, 256):
        raise ValueError(f"dataset[{index}] has values {array.min()}..{array.max()}, not 0..{num_values - 1}")
    return array.astype(np.uint8)


def _classes(labels: list[Any]) -> NDArray[np.int64] | None:
    if all(label is None for label in labels):
        return None
    for i, label in enumerate(labels):
        if label is None or np.asarray(label).dtype.kind not in "ui" or np.size(label) != 1 or label < 0:
            raise ValueError(f"dataset[{i}] has the label {label!r}: all items need one, an integer from 0, or none")
    return np.array([int(label) for label in labels], np.int64)
