"""A package with other models."""

import shutil

import pytest
import torch

from axial_transformers.compression import shipped_models
from axial_transformers.storage import model_folders


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """Return a function that puts a model into the package, under a name."""
    folder = tmp_path / "pretrained"
    for module in (model_folders, shipped_models):
        monkeypatch.setattr(module, "SHIPPED", folder)

    def put(model, name="small", dtype=torch.float32):
        shutil.rmtree(folder / name, ignore_errors=True)
        model.save_pretrained(folder / name)
        tensors = model.state_dict()
        stored = {key: tensor.to(dtype) if tensor.is_floating_point() else tensor for key, tensor in tensors.items()}
        model_folders.write_tensors(folder / name / model_folders.WEIGHTS, stored)
        (folder / name / shipped_models.IDENTITY).write_text(shipped_models.identity(model))
        return model

    return put
