"""What is chosen by the machine: the precision, compiled blocks, how threads wait."""

import os
import re

import pytest
import torch

from axial_transformers import cli, machine
from axial_transformers.machine import free_memory, multiplies_bfloat16
from axial_transformers.training import TrainConfig, read_run
from tests.conftest import GIGABYTE, TINY, Axial

WITH_BFLOAT16, WITHOUT = True, False


@pytest.fixture
def on(monkeypatch):
    """Puts the tests on a processor with instructions for bfloat16 or without."""

    def use(has: bool) -> None:
        for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": has})
        monkeypatch.setattr(machine, "multiplies_bfloat16", multiplies_bfloat16)

    return use


@pytest.mark.parametrize(("has", "chosen"), [(WITH_BFLOAT16, "bfloat16"), (WITHOUT, "float32")])
def test_auto_is_bfloat16_where_the_processor_has_its_instructions(on, monkeypatch, has, chosen):
    on(has)
    assert TrainConfig(device="cpu").resolve_auto().precision == chosen
    for limit, precision in (("AVX2", "float32"), ("AVX512_CORE_AMX", chosen)):
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
        assert TrainConfig(device="cpu").resolve_auto().precision == precision


def test_auto_is_bfloat16_on_gpus_from_ampere_on(monkeypatch):
    for capability, native in (((7, 5), False), ((8, 0), True), ((9, 0), True)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, found=capability: found)
        assert multiplies_bfloat16(torch.device("cuda")) is native


def test_a_run_is_begun_in_what_suits_the_machine_and_resumed_in_what_it_was_begun_in(axial: Axial, tmp_path, on):
    on(WITH_BFLOAT16)
    begin = ["--training.steps", 1, "--training.device", "cpu", "--validate-on", 2, "--samples", 1]
    status, _, said = axial("train", "digits", *TINY, *begin, "--out", tmp_path)
    assert (status, re.search("precision +bfloat16", said) is None) == (0, False)
    on(WITHOUT)
    assert TrainConfig(device="cpu").resolve_auto().precision == "float32"
    assert axial("train", tmp_path, "--training.steps", 2).status == 0
    record = read_run(tmp_path)
    assert record is not None
    assert (record.run.training.steps, record.run.training.precision) == (2, "bfloat16")
    again = TrainConfig(device="cpu").resolve_auto(record.run.training)
    assert (again.precision, again.compile) == ("bfloat16", record.run.training.compile) == ("bfloat16", False)


def test_waiting_threads_soon_sleep_unless_the_user_says_otherwise(monkeypatch):
    for given in ({}, {"GOMP_SPINCOUNT": "7"}, {"OMP_WAIT_POLICY": "active"}):
        for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
            monkeypatch.delenv(name, raising=False)
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        assert cli.main(["--version"]) == 0
        found = {name: os.environ[name] for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY") if name in os.environ}
        assert found == (given or {"GOMP_SPINCOUNT": "1000"})


def test_free_memory_is_within_the_limit_of_the_process(at_most_a_gigabyte_more):
    assert 0 < free_memory() <= GIGABYTE


def test_free_memory_is_within_the_limit_of_the_container(monkeypatch, tmp_path):
    """Files that can be dropped from memory do not count as used."""
    (tmp_path / "memory.max").write_text("5000")
    (tmp_path / "memory.current").write_text("1500")
    (tmp_path / "memory.stat").write_text("anon 500\ninactive_file 1000\n")
    monkeypatch.setattr(machine, "CONTROL_GROUP", tmp_path)
    assert free_memory() == 5000 - 500
    (tmp_path / "memory.max").write_text("max")
    assert free_memory() > 5000
