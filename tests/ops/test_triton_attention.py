"""Kernels of Triton are off, and right in Triton's interpreter."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

from axial_transformers.ops import sdpa, triton_attention
from axial_transformers.ops.attention_call import AttentionCall, normalised
from tests.paths import ROOT


def test_the_kernels_are_off_unless_the_environment_turns_them_on():
    q = torch.zeros(2, 3, 64, 2, 8)
    call = normalised(AttentionCall(q, q, q, 2, key_mask=torch.ones(2, 3, 64, dtype=torch.bool)))
    assert "AXIAL_TRITON=1" in triton_attention.refuses(call)
    assert sdpa.refuses(call) is None


needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")


@needs_triton
def test_the_kernels_are_right_in_the_interpreter():
    """In a process of their own: Triton reads TRITON_INTERPRET when it is imported."""
    words = ["-m", "pytest", "-x", "tests/ops/triton_cases.py", "-p", "no:cacheprovider"]
    env = os.environ | {"TRITON_INTERPRET": "1", "AXIAL_TRITON": "1", "OMP_NUM_THREADS": "1"}
    ended = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=ROOT, env=env, check=False)
    assert ended.returncode == 0, ended.stdout[-5000:]


@pytest.mark.slow
@needs_triton
def test_the_kernels_of_every_variant_compile_for_a_gpu():
    """The interpreter takes code that the compiler refuses; so this runs after each change of a kernel."""
    words = [sys.executable, "-m", "tests.ops.triton_compiled"]
    ended = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    assert ended.returncode == 0, ended.stderr[-5000:]
