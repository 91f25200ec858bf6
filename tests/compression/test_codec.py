"""Archives: encoder and decoder compute the same bits, however they are run."""

import io

import numpy as np
import pytest
import torch

from axial_transformers.compression import (
    ArchiveError,
    ArchiveReader,
    DamagedError,
    TruncatedError,
    compress,
    container,
    decompress,
)
from axial_transformers.compression.archive import write_archive
from axial_transformers.decoding.sampling import sample
from axial_transformers.engine import GROUP, network, reference
from axial_transformers.exact import network as exact_network
from axial_transformers.exact.network import ExactNetwork
from axial_transformers.likelihood.bits import bits_per_dim, slice_nats
from axial_transformers.models import AxialTransformer, Conditioning
from tests.compression.archive_parts import joined, parts
from tests.small_models import CHUNKS_OF_64, PAIRWISE, VARIANTS, random_given, random_model, random_values, small_config


def random_labels(model: AxialTransformer, count: int) -> dict[str, torch.Tensor]:
    """Labels, if the model has classes."""
    return {name: value for name, value in random_given(model, count).items() if name == "label"}


@pytest.mark.parametrize("config", PAIRWISE.values(), ids=PAIRWISE)
def test_known_values_have_the_models_likelihood_and_from_the_reference_the_same_bits(config):
    model = random_model(config, torch.float32)
    x, given = random_values(model, 2), Conditioning(**random_given(model, 2))
    fast, slow = ExactNetwork(model, network), ExactNetwork(model, reference)
    nats = fast.nats(x, given)
    expected = [slice_nats(model.double(), x, torch.full((2,), c), *given) for c in model.slices]
    rounded = 1e-4 if config.num_values > 300 else 0  # far from 65,536 random means, thousands of nats
    np.testing.assert_allclose(nats, torch.stack(expected, -2).detach(), rtol=rounded, atol=1e-4)
    assert nats.tobytes() == slow.nats(x, given).tobytes()
    assert fast.intervals(x, given).tobytes() == slow.intervals(x, given).tobytes()
    fast, slow = ExactNetwork(model, network, integers=True), ExactNetwork(model, reference, integers=True)
    assert fast.intervals(x, given).tobytes() == slow.intervals(x, given).tobytes()


@pytest.mark.parametrize("kind", [kind for kind in VARIANTS if "known" not in kind])
def test_models_decode_what_they_encoded(kind):
    """The decoder goes from position to position, the encoder takes all at once."""
    model = random_model(VARIANTS[kind], torch.float32)
    count = GROUP + 2
    x, given = random_values(model, count), random_labels(model, count)
    archive = compress(model, x, **given, verify=False)
    assert torch.equal(decompress(model, archive, **given).long(), x)


@pytest.mark.parametrize("kind", ["2d", "lstm", "classes", "columns"])
def test_without_the_library_archives_are_the_same(kind, monkeypatch):
    model = random_model(VARIANTS[kind], torch.float32)
    x, given = random_values(model, 3), random_labels(model, 3)
    archive = compress(model, x, **given)
    monkeypatch.setattr(exact_network, "library", lambda: None)
    monkeypatch.setattr(exact_network, "arithmetic", lambda: reference)
    assert ExactNetwork(model).arithmetic is reference
    assert compress(model, x, **given, verify=False) == archive
    assert torch.equal(decompress(model, archive, **given).long(), x)


def test_threads_dtypes_and_the_state_of_the_processor_make_no_difference():
    model = random_model(VARIANTS["classes"], torch.float32)
    x, given = random_values(model, 200), random_labels(model, 200)
    whole = compress(model, x, **given, verify=False)
    assert len(container.read_header(io.BytesIO(whole)).chunks) == 1
    with CHUNKS_OF_64:
        archive = compress(model, x, **given, verify=False)
    assert len(container.read_header(io.BytesIO(archive)).chunks) == 3
    torch.set_num_threads(2)
    torch.set_flush_denormal(True)
    try:
        assert compress(model, x, **given, verify=False) == whole  # its images are divided
        assert torch.equal(decompress(model, whole, **given).long(), x)
        with CHUNKS_OF_64:
            assert compress(model, x, **given, verify=False) == archive
        assert torch.equal(decompress(model, archive, **given).long(), x)
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(1)


def test_the_archive_is_as_long_as_the_model_says():
    model = random_model(small_config((5, 7), num_values=256), torch.float32)
    images = sample(model, 150, seed=0, compile=False)
    archive = compress(model, images, verify=False)
    ideal = bits_per_dim(model, images.long()).sum().item() * 35 / 8
    header = container.read_header(io.BytesIO(archive)).starts[0]
    assert ideal < len(archive) - header < 1.001 * ideal + 20


@pytest.fixture(scope="module")
def written() -> tuple[AxialTransformer, bytes]:
    model = random_model(VARIANTS["2d"], torch.float32)
    return model, compress(model, random_values(model, 9), verify=False)


def test_damage_that_no_checksum_shows_is_an_error(written):
    """A stream that is cut, lengthened, or has one other bit, in a chunk whose checksum fits."""
    model, archive = written
    header, (content,) = parts(archive)
    cut = [content[:length] for length in range(0, len(content), 3)] + [content[:-4], content + b"1234", content + b"1"]
    cut += [b"\xff" * 8 + content[8:], bytes(100)]  # a first state beyond 63 bits, and below 32
    flipped = [content[:at] + bytes([content[at] ^ 16]) + content[at + 1 :] for at in range(len(content))]
    for chunk in cut + flipped:
        with pytest.raises(DamagedError):
            decompress(model, joined(header, [chunk]))


def test_every_flipped_bit_of_the_header_and_truncation_at_every_length_is_seen(written):
    model, archive = written
    for at in range(container.read_header(io.BytesIO(archive)).starts[0]):
        with pytest.raises(ArchiveError):
            decompress(model, archive[:at] + bytes([archive[at] ^ 1]) + archive[at + 1 :])
    for length in range(len(archive)):
        with pytest.raises(TruncatedError, match=r"ends|chunk 0"):
            decompress(model, archive[:length])


@pytest.mark.parametrize("arithmetic", [network, reference], ids=["C", "reference"])
def test_logits_that_are_not_finite_are_refused(arithmetic, monkeypatch):
    model = random_model(small_config((3, 2)), torch.float32)
    with torch.no_grad():
        model.head[1].bias[2] = torch.inf
    monkeypatch.setattr(exact_network, "arithmetic", lambda: arithmetic)
    with pytest.raises(ValueError, match="not finite"), np.errstate(invalid="ignore"):
        compress(model, random_values(model, 2))


class OtherModel(AxialTransformer):
    """A model that the exact network does not know."""


def test_models_without_an_exact_network_are_refused_in_one_line():
    other = OtherModel(small_config((2, 3))).eval()
    refusal = r"^OtherModel has no exact network, so this model makes no archives$"
    with pytest.raises(ValueError, match=refusal):
        compress(other, random_values(other, 2))
    with pytest.raises(ValueError, match=refusal):
        decompress(other, b"")


def test_chunks_are_written_before_more_images_are_read(monkeypatch):
    """So that any number of images can be packed."""
    model = random_model(VARIANTS["2d"], torch.float32)
    x, happened = random_values(model, 200), []

    class Source:
        def __len__(self):
            return len(x)

        def __getitem__(self, some):
            happened.append("read")
            return x[some]

    class Target(io.BytesIO):
        def write(self, content):
            happened.append("write")
            return super().write(content)

    file = Target()
    with CHUNKS_OF_64:
        write_archive(model, file, Source(), None, verify=True)
    assert happened == ["write", *["read", "write"] * 3, "write"]
    happened.clear()
    images = ArchiveReader(file, model).images(range(3))
    monkeypatch.setattr(
        container, "read_chunk", lambda *_, read=container.read_chunk: happened.append("read") or read(*_)
    )
    assert torch.equal(next(images), x[:66].byte())
    assert happened == ["read"]
