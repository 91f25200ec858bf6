"""Memory that can be had is that of the machine, the container and the process's own limit, whichever is least."""

from axial_transformers.planning import machine
from axial_transformers.planning.machine import free_memory
from conftest import GIGABYTE


def test_it_is_within_the_limit_of_the_process(at_most_a_gigabyte_more):
    assert 0 < free_memory() <= GIGABYTE


def test_it_is_within_the_limit_of_the_container(monkeypatch, tmp_path):
    """Files that can be dropped from memory do not count as used."""
    (tmp_path / "memory.max").write_text("5000")
    (tmp_path / "memory.current").write_text("1500")
    (tmp_path / "memory.stat").write_text("anon 500\ninactive_file 1000\n")
    monkeypatch.setattr(
        machine, "CONTROL_GROUPS", [(tmp_path / "memory.max", tmp_path / "memory.current", "inactive_file")]
    )
    assert free_memory() == 5000 - 500
    (tmp_path / "memory.max").write_text("max")
    assert free_memory() > 5000
