"""Decoding of one record to an example."""

from collections.abc import Mapping
from typing import IO, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from axial_transformers.data.arrays import example_of
from axial_transformers.data.config import DataConfig
from axial_transformers.data.images import PixelKind, decoded, fitted, kind_of_images
from axial_transformers.data.npy import array_of
from axial_transformers.data.picture_files import Member
from axial_transformers.data.shards.tar import ARRAY, Place

LARGEST_RECORD = 1 << 26  # bytes of a record
MOST_CLASSES = 1 << 16


Medium = Literal["gray", "gray16", "rgb", "array", "array16"]


class Form(NamedTuple):
    """The form of a record. All records of a data set have the same, except for gray pictures among those in colour."""

    medium: Medium
    num_values: int
    shape: tuple[int, ...]
    """[*A, C]."""
    labelled: bool


def read(stream: IO[bytes], place: Place, name: str) -> bytes:
    """Reads the bytes at a place of a shard.

    Raises:
        ValueError: more than 64 MiB, or beyond the end of the shard.
    """
    if place.size > LARGEST_RECORD:
        raise ValueError(f"{name} has {place.size:,} bytes, above {LARGEST_RECORD:,}: remove it")
    stream.seek(place.start)
    content = stream.read(place.size)
    if len(content) < place.size:
        raise ValueError(f"{name} ends after {len(content):,} of {place.size:,} bytes: copy the shard again")
    return content


def decode_array(content: bytes, name: str, options: DataConfig) -> tuple[NDArray[np.uint8], Form]:
    """The example [*A, C] in an .npy member, and its form.

    Raises:
        ValueError: it is damaged, or does not fit the options.
    """
    values, (num_values, uint16) = example_of(array_of(content, name), name, options)
    return values, Form("array16" if uint16 else "array", num_values, values.shape, labelled=False)


def decode_picture(
    content: bytes, name: str, options: DataConfig, kind: PixelKind | None = None
) -> tuple[NDArray[np.uint8], Form]:
    """The example [H, W, C] in a picture, and its form; kind=None: as the picture itself is stored.

    Raises:
        ValueError: it is damaged, or does not fit the options.
    """
    member = Member(content, name)
    kind = kind or kind_of_images([member], options)
    (values,), _ = fitted(member, decoded(member, kind), options)
    return values, Form(kind, 256, values.shape, labelled=False)


def decode(content: bytes, name: str, options: DataConfig) -> tuple[NDArray[np.uint8], Form]:
    """Decodes an array or a picture, by the suffix of its name."""
    if name.lower().endswith(ARRAY):
        return decode_array(content, name, options)
    return decode_picture(content, name, options)


def class_of(content: bytes, name: str) -> int:
    """The class that the text of a .cls member states.

    Raises:
        ValueError: no number, or one out of range.
    """
    digits = content.strip()
    if not (digits.isdigit() and len(digits) < 9 and int(digits) < MOST_CLASSES):
        raise ValueError(f"{name}: its class is {content[:20]!r}, not a number in 0..{MOST_CLASSES - 1}: correct it")
    return int(digits)


def common_form(forms: Mapping[Form, str]) -> Form:
    """The form as which records of these forms (each with the name of a record) are read: in colour if any of them is.

    Raises:
        ValueError: they do not fit together; the line names two of them.
    """
    in_colour = {
        form._replace(medium="rgb", shape=(*form.shape[:-1], 3)) if form.medium == "gray" else form: name
        for form, name in forms.items()
    }
    if len(in_colour) == 1:
        return next(iter(forms if len(forms) == 1 else in_colour))
    (form, name), (other, other_name), *_ = in_colour.items()
    if form.labelled != other.labelled:
        with_class, without = (name, other_name) if form.labelled else (other_name, name)
        raise ValueError(f"{with_class} has a class and {without} has none: add or remove the .cls members")
    if form.shape[:-1] != other.shape[:-1]:
        here, there = ("x".join(map(str, each.shape[:-1])) for each in (form, other))
        raise ValueError(f"{other_name} is {there} where {name} is {here}: give a size and fit=crop or fit=stretch")
    raise ValueError(
        f"{other_name} ({other.medium}, {list(other.shape)}) and {name} ({form.medium}, {list(form.shape)})"
        " do not fit together: convert one kind, or remove it"
    )
