"""Images to an archive and back: what it needs again, and what is refused."""

import io
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from axial_transformers.compression import (
    ArchiveReader,
    DamagedError,
    OtherVersionError,
    WrongConditionsError,
    WrongModelError,
    compress,
    container,
    decompress,
    fingerprint,
)
from axial_transformers.models import AxialTransformer
from tests.compression.archive_parts import joined, parts
from tests.small_models import CHUNKS_OF_64, VARIANTS, random_model, random_values, small_config


@pytest.fixture(scope="module")
def gray() -> AxialTransformer:
    return random_model(small_config((3, 5), num_values=256), torch.float32)


@pytest.fixture(scope="module")
def three_chunks(gray) -> tuple[torch.Tensor, bytes]:
    images = random_values(gray, 200).byte()
    with CHUNKS_OF_64:
        return images, compress(gray, images, verify=False)


def labelled(count: int) -> tuple[AxialTransformer, torch.Tensor, torch.Tensor]:
    model = random_model(VARIANTS["classes"], torch.float32)
    return model, random_values(model, count).byte(), torch.arange(count) % 3


def test_labels_are_needed_again():
    model, images, label = labelled(70)
    archive = compress(model, images, label)
    assert torch.equal(decompress(model, archive, label), images)
    for wrong in (None, label[1:]):
        with pytest.raises(WrongConditionsError, match="labels"):
            decompress(model, archive, wrong)
    with pytest.raises(DamagedError):
        decompress(model, archive, (label + 1) % 3)
    with pytest.raises(WrongConditionsError, match="without label"):
        decompress(model, compress(model, images), label)


def test_the_callers_model_is_left_alone_and_no_images_make_an_archive_too(gray):
    gray.train()
    archive = compress(gray, torch.zeros(0, 3, 5, 1, dtype=torch.uint8))
    assert gray.training
    assert all(weight.dtype == torch.float32 and weight.requires_grad for weight in gray.parameters())
    gray.eval()
    assert decompress(gray, archive).shape == (0, 3, 5, 1)


def test_a_chunk_is_read_without_the_rest(gray, three_chunks):
    images, archive = three_chunks
    header = container.read_header(io.BytesIO(archive))
    assert [chunk.images for chunk in header.chunks] == [66, 67, 67]
    damaged = bytearray(archive)
    damaged[header.starts[0] + 9] ^= 1
    damaged[header.starts[2] + 9] ^= 1
    for part in (bytes(damaged), archive[: header.starts[2]]):
        (found,) = ArchiveReader(io.BytesIO(part), gray).images([1])
        assert torch.equal(found, images[66:133])
    with pytest.raises(DamagedError, match="chunk 0"):
        decompress(gray, bytes(damaged))


def test_the_fingerprint_ignores_how_the_model_is_held(tmp_path, gray):
    gray.save_pretrained(tmp_path / "model")
    assert fingerprint(AxialTransformer.from_pretrained(tmp_path / "model")) == fingerprint(gray.train())


def test_an_archive_of_another_model_or_other_conditions_or_another_version_is_refused(gray, three_chunks):
    archive, other = three_chunks[1], random_model(gray.config, torch.float32)
    with torch.no_grad():
        next(other.parameters())[0] += 1e-6
    for model in (other, random_model(replace(gray.config, dropout=0.1), torch.float32)):
        with pytest.raises(WrongModelError):
            decompress(model, archive)
    with pytest.raises(WrongConditionsError):
        decompress(gray, joined(*parts(archive), labels=True))
    with pytest.raises(OtherVersionError, match="version 3"):
        decompress(gray, archive.replace(b"format 8", b"format 3", 1))


def test_damage_is_refused_though_checksums_may_fit(gray, three_chunks):
    images, archive = three_chunks
    header, contents = parts(archive)
    with CHUNKS_OF_64:
        other = parts(compress(gray, images.flip(0), verify=False))[1]
    wrong = {
        "not an archive": b"\x89PNG\r\n\x1a\n and so on", "behind the last chunk": archive + b"\0",
        "chunk 0": archive.replace(contents[0], other[0][: len(contents[0])].ljust(len(contents[0]))),
    }  # fmt: skip
    for reason, content in wrong.items():
        with pytest.raises(DamagedError, match=reason):
            decompress(gray, content)
    one = replace(header, chunks=header.chunks[:1])
    counts = [{"chunks": (one.chunks[0]._replace(images=images),)} for images in (65, 67, 200, 257, 2**16 - 1)]
    shapes = [{"shape": (3, 500)}, {"shape": (3, 2**32 - 1, 2**32 - 1)}, {"channels": 2**32 - 1}, {"num_values": 1}]
    for fields in counts + shapes:
        with pytest.raises(DamagedError):
            decompress(gray, joined(replace(one, **fields), contents[:1]))


def test_chunks_are_found_in_time_linear_in_their_number(three_chunks):
    header, _ = parts(three_chunks[1])
    archive = io.BytesIO(replace(header, chunks=(container.entry(1, b""),) * (1 << 14)).pack())
    begun = time.process_time()
    header = container.read_header(archive)
    for i in range(len(header.chunks)):
        assert container.read_chunk(archive, header, i) == b""
    assert time.process_time() - begun < 5


def test_arrays_and_lists_do_as_well_as_tensors():
    model, images, label = labelled(4)
    archive = compress(model, images, label)
    for as_given in (np.asarray, torch.Tensor.tolist, lambda x: x.numpy().astype(">u2")[::-1][::-1]):
        assert compress(model, as_given(images), as_given(label), verify=False) == archive
        assert torch.equal(decompress(model, archive, as_given(label)), images)
    for kind in (bytearray, memoryview, io.BytesIO):
        assert torch.equal(decompress(model, kind(archive), label), images)


def test_what_is_no_array_or_no_archive_or_not_of_the_model_is_one_line(gray, tmp_path):
    for images in ("text", [[1], [1, 2]], None, 3, [{}]):
        with pytest.raises(ValueError, match="images"):
            compress(gray, images)
    (tmp_path / "a.axl").write_bytes(b"")
    with (tmp_path / "a.axl").open() as text:
        for archive in (str(tmp_path / "a.axl"), text):
            with pytest.raises(ValueError, match=r"must be bytes or a binary file.*: open a path with mode \"rb\"$"):
                decompress(gray, archive)
    with pytest.raises(ValueError, match="known channels"):
        compress(random_model(VARIANTS["known channels"], torch.float32), torch.zeros(1, 3, 2, 3, dtype=torch.uint8))
    with pytest.raises(ValueError, match="3, 5, 1"):
        compress(gray, torch.zeros(1, 5, 3, 1, dtype=torch.uint8))
