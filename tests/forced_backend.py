"""Let one backend compute all attention, also where another is faster."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from axial_transformers.ops import backends
from axial_transformers.ops.attention_call import AttentionCall


@contextmanager
def forced(backend: backends.Backend) -> Iterator[None]:
    def choose(call: AttentionCall) -> backends.Backend:
        return backend

    with mock.patch.object(backends, "choose", choose):
        yield
