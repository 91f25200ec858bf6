"""The models that are trained by name."""

from pathlib import Path

from axial_transformers.models import AxialTransformer, AxialTransformerConfig
from axial_transformers.models.baselines.sequence_models import BlockTransformer, ImageTransformer, SparseTransformer
from axial_transformers.storage import model_folders
from axial_transformers.storage.typed_json import from_json

MODELS: tuple[type[AxialTransformer], ...] = (AxialTransformer, ImageTransformer, BlockTransformer, SparseTransformer)


def class_of(config: AxialTransformerConfig) -> type[AxialTransformer]:
    """Return the class of models with this configuration."""
    return next((model for model in MODELS if model.config_class is type(config)), AxialTransformer)


def class_called(name: object) -> type[AxialTransformer]:
    """Return the class of that name, else the Axial Transformer."""
    return next((model for model in MODELS if model.name == name), AxialTransformer)


def build(config: AxialTransformerConfig) -> AxialTransformer:
    """Return a model with new weights."""
    return class_of(config)(config)


def read_config(folder: str | Path) -> AxialTransformerConfig:
    """Return the configuration of a folder or hub id; see `from_pretrained`."""
    folder = model_folders.locate(folder)
    model = class_called(model_folders.stored_name(folder))
    return from_json(model.config_class, model_folders.load_config(folder, model.name), folder / model_folders.CONFIG)


def read_model(folder: str | Path) -> AxialTransformer:
    """Return the model of a folder or hub id, of any class; see `from_pretrained`."""
    folder = model_folders.locate(folder)
    return class_called(model_folders.stored_name(folder)).from_pretrained(folder)
