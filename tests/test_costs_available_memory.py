"""Memory that can be had is that of the machine, the container and the process's own limit, whichever is least."""

from axial_transformers.costs import available_memory as module
from axial_transformers.costs.available_memory import available_memory
from conftest import GIGABYTE


def test_it_is_within_the_limit_of_the_process(at_most_a_gigabyte_more):
    assert 0 < available_memory() <= GIGABYTE


def test_it_is_within_the_limit_of_the_container(monkeypatch, tmp_path):
    """Files that can be dropped from memory do not count as used."""
    (tmp_path / "memory.max").write_text("5000")
    (tmp_path / "memory.current").write_text("1500")
    (tmp_path / "memory.stat").write_text("anon 500\ninactive_file 1000\n")
    monkeypatch.setattr(module, "_CGROUP", tmp_path)
    assert available_memory() == 5000 - 500
    (tmp_path / "memory.max").write_text("max")
    assert available_memory() > 5000


def test_it_is_unknown_on_other_systems(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_CGROUP", tmp_path)
    monkeypatch.setattr(module, "_MEMORY", tmp_path / "meminfo")
    assert available_memory() is None
