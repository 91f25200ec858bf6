"""Identity of the model that an archive was written with."""

import hashlib
import json
from dataclasses import MISSING, fields

import torch

from axial_transformers.models import AxialTransformer
from axial_transformers.storage.typed_json import to_json


def fingerprint(model: AxialTransformer) -> bytes:
    """SHA-256 of the model's configuration and its tensors (name, dtype, shape, bytes) in the order of names: 32 bytes.

    Fields of the configuration at their defaults are left out, so that a new field does not change fingerprints.

    Raises:
        ValueError: the model is on the meta device.
    """
    model.require_values()
    defaults = {field.name: field.default for field in fields(model.config) if field.default is not MISSING}
    config = {name: value for name, value in to_json(model.config).items() if value != defaults.get(name, MISSING)}
    digest = hashlib.sha256(json.dumps({"model": model.name, **config}, sort_keys=True).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"\0{name} {tensor.dtype} {list(tensor.shape)}\0".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.digest()
