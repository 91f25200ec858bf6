"""Archives that name a model of the package, or hold its changes, in place of a whole model."""

import copy
import io
from importlib.metadata import version
from unittest.mock import patch

import numpy as np
import pytest
import torch

import axial_transformers as axial
from axial_transformers.compression import (
    ArchiveError,
    ArchiveReader,
    DamagedError,
    OtherVersionError,
    TruncatedError,
    WrongModelError,
    compress_files,
    container,
    decompress_files,
    embedded_model,
    fingerprint,
    shipped_models,
)
from axial_transformers.compression.embedded_model import differs_in_weights, pack, unpack
from axial_transformers.engine import reference
from axial_transformers.storage.model_folders import SHIPPED, shipped_names
from tests.compression.archive_parts import archive_of_changes, changed, joined, parts, steps_for
from tests.small_models import VARIANTS, random_model, random_values

KINDS = ["2d", "classes", "centred axis", "ordinal columns", "rotary 3d"]


@pytest.mark.parametrize("name", shipped_names())
def test_a_model_of_the_package_is_the_one_that_its_folder_states(name):
    model = axial.AxialTransformer.from_pretrained(SHIPPED / name)
    assert (SHIPPED / name / shipped_models.IDENTITY).read_text() == shipped_models.identity(model)
    needs = shipped_models.needed(model)
    assert (needs.name, needs.fingerprint) == (name, fingerprint(model))
    assert fingerprint(shipped_models.open_needed(needs)) == fingerprint(model)


@pytest.mark.parametrize("kind", KINDS)
def test_an_archive_by_a_model_of_the_package_needs_no_other(kind, shipped):
    model = shipped(random_model(VARIANTS[kind], torch.float32))
    x = random_values(model, 7) + model.config.lowest
    archive = axial.compress(model, x)
    reader = axial.open_archive(archive)
    assert torch.equal(reader.values.long(), x.long())
    assert torch.equal(axial.decompress(model, archive).long(), x.long())
    named = f"needs small of version {version('axial-transformers')} or later, SHA-256 {fingerprint(model).hex()}"
    assert archive.startswith(f"axial-transformers archive, format 8, {named}\r\n\x1a\n".encode())


@pytest.mark.parametrize("code", [0, 200, 236, 300, 511])
@pytest.mark.parametrize("kind", KINDS)
def test_changes_come_back_to_the_last_bit(kind, code):
    base = random_model(VARIANTS[kind], torch.float32)
    model = changed(base, share=0.5)
    assert differs_in_weights(model, base)
    once, content = pack(model, steps_for(model, code), base)
    assert fingerprint(unpack(content, base)) == fingerprint(once)
    with patch.object(embedded_model, "arithmetic", lambda: reference):
        assert pack(model, steps_for(model, code), base).content == content
    for name, weight in once.named_parameters():
        if torch.equal(model.get_parameter(name), base.get_parameter(name)):
            assert torch.equal(weight, base.get_parameter(name))
    if code == 200:
        assert fingerprint(once) != fingerprint(base)
        error = max((a - b).abs().max() for a, b in zip(once.parameters(), model.parameters()))
        assert error < 1e-3


@pytest.mark.parametrize("kind", ["2d", "centred axis"])
def test_no_changes_take_few_bytes(kind):
    base = random_model(VARIANTS[kind], torch.float32)
    _, content = pack(base, steps_for(base, 236), base)
    assert len(content) <= 16 + len(base.state_dict()) / 2
    assert fingerprint(unpack(content, base)) == fingerprint(base)


@pytest.mark.parametrize("kind", ["2d", "centred axis", "ordinal columns"])
def test_values_come_back_from_an_archive_of_changes(kind, shipped):
    base = shipped(random_model(VARIANTS[kind], torch.float32))
    x = random_values(base, 7) + base.config.lowest
    archive, written = archive_of_changes(changed(base), base, x)
    assert written.base == "small"
    assert written.model_size > 0
    reader = axial.open_archive(archive)
    assert torch.equal(reader.values.long(), x.long())
    assert fingerprint(reader.model) == reader.header.fingerprint != fingerprint(base)


def test_changes_that_do_not_pay_are_left_out(shipped):
    base = shipped(random_model(VARIANTS["2d"], torch.float32))
    x = random_values(base, 7)
    archive, written = archive_of_changes(changed(base), base, x, expected=2.0)
    assert (written.model_size, written.base) == (0, "small")
    assert torch.equal(axial.open_archive(archive).values.long(), x.long())


def test_a_model_that_differs_in_more_than_weights_is_stored_whole(shipped):
    base = shipped(random_model(VARIANTS["centred axis"], torch.float32))
    other = copy.deepcopy(base)
    other.get_buffer("values.spread").mul_(2)
    assert not differs_in_weights(other, base)
    archive, written = archive_of_changes(other, None, random_values(base, 3))
    assert written.base == ""
    assert axial.open_archive(archive).header.needs is None


def test_a_model_that_the_package_lacks_is_named_with_the_version_that_has_it(shipped, tmp_path):
    model = shipped(random_model(VARIANTS["2d"], torch.float32))
    archive = axial.compress(model, random_values(model, 3))
    (tmp_path / "pretrained" / "small").rename(tmp_path / "gone")
    with pytest.raises(WrongModelError, match=rf"small.* {version('axial-transformers')} "):
        axial.open_archive(archive)
    shipped(changed(model))
    with pytest.raises(WrongModelError, match="small"):
        axial.open_archive(archive)
    assert len(axial.decompress(model, archive)) == 3


def test_an_archive_names_no_model_outside_of_the_package(shipped):
    model = shipped(random_model(VARIANTS["2d"], torch.float32))
    header, contents = parts(axial.compress(model, random_values(model, 3)))
    for name in ("other", "small/../small", "owner/name", "../small", ""):
        archive = joined(header, contents, needs=header.needs._replace(name=name))
        with pytest.raises(ArchiveError):
            axial.open_archive(archive)


def test_files_by_a_model_of_the_package_come_back_without_naming_it(shipped, tmp_path):
    model = shipped(random_model(VARIANTS["2d"], torch.float32))
    values = random_values(model, 3).numpy().astype(np.uint8)
    np.save(tmp_path / "x.npy", values)
    for embed, needs in ((None, "small"), (True, "")):
        target = tmp_path / f"x{needs}.axl"
        written = compress_files(model, tmp_path / "x.npy", target, embed=embed, force=True)
        assert written.base == needs
        assert (written.model_size > 0) == (not needs)
        decompress_files(None, target, tmp_path / f"y{needs}.npy")
        assert np.array_equal(np.load(tmp_path / f"y{needs}.npy"), values)


def test_the_first_line_is_text_and_tells_a_transfer_as_text_from_a_cut(shipped):
    model = shipped(random_model(VARIANTS["2d"], torch.float32))
    archive = axial.compress(model, random_values(model, 3))
    line = archive.partition(b"\r\n\x1a\n")[0]
    assert line.decode("ascii").isprintable()
    with pytest.raises(DamagedError):
        axial.open_archive(archive.replace(b"\r\n", b"\n"))
    with pytest.raises(DamagedError):
        axial.open_archive(archive.replace(b"needs", b"wants", 1))
    with pytest.raises(OtherVersionError):
        axial.open_archive(archive.replace(b"format 8", b"format 9", 1))
    with pytest.raises(DamagedError):
        axial.open_archive(b"\x89PNG\r\n\x1a\n" + archive)
    for length in range(len(archive)):
        with pytest.raises(TruncatedError):
            ArchiveReader(archive[:length]).read()


def test_a_header_that_contradicts_its_first_line_is_damaged(shipped):
    model = shipped(random_model(VARIANTS["2d"], torch.float32))
    header, contents = parts(axial.compress(model, random_values(model, 3)))
    for fields in ({"needs": None}, {"fingerprint": bytes(32)}):
        with pytest.raises(DamagedError):
            container.read_header(io.BytesIO(joined(header, contents, **fields)))


def test_damaged_changes_raise_nothing_but_errors_of_archives(shipped):
    base = shipped(random_model(VARIANTS["centred axis"], torch.float32))
    archive, _ = archive_of_changes(changed(base), base, random_values(base, 3))
    header, contents = parts(archive)
    generator = np.random.default_rng(0)
    for _ in range(12):
        content = bytearray(contents[0])
        for place in generator.integers(0, len(content), 2):
            content[place] ^= 1 << int(generator.integers(8))
        with pytest.raises(ArchiveError):
            axial.open_archive(joined(header, [bytes(content), *contents[1:]])).read()
