"""A trained model as the verbs need it: with its weights, and what is known of where it comes from."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from axial_transformers.cli.settings import RUN_RECORD, read_record
from axial_transformers.data import DataConfig, Examples, Split, load
from axial_transformers.models import AxialTransformer
from axial_transformers.storage import model_folders
from axial_transformers.storage.files import require_inside

Weights = Literal["ema", "raw"]


@dataclass(frozen=True)
class TrainedModel:
    """A model, which weights it has, and how the data was read that it was trained on."""

    model: AxialTransformer
    weights: str
    source: str | None
    data: DataConfig
    uint16: bool
    class_names: tuple[str, ...] | None

    def examples(self, source: str | None, split: Split | None) -> tuple[Examples, str]:
        """Examples of `source` as the model reads data, and what they are in words.

        None: the test part of what the model was trained on, or its validation part if it has no test part; of a source
        that is given, everything.

        Raises:
            ValueError: there is none, or it is not the model's.
        """
        if source is None and self.source is None:
            raise ValueError("this model does not know its data: name a folder, an .npz file, or digits")
        where = source or self.source or ""
        if split is None and source is None:
            try:
                return load(where, self.data, "test"), f"{where}, test"
            except ValueError:
                split = "validation"
        examples = load(where, self.data, split or "all")
        config = self.model.config
        if (*examples.shape, examples.channels) != (*config.shape, config.channels):
            raise ValueError(
                f"{where} holds {[*examples.shape, examples.channels]} values an example, "
                f"the model is of {[*config.shape, config.channels]}"
            )
        return examples, f"{where}, {split or 'all'}"


def open_model(folder: str, weights: Weights = "ema", device: str = "auto") -> TrainedModel:
    """Reads the folder of a run or of an exported model, or a hub id, in evaluation mode.

    Raises:
        ValueError: damaged files, or no such weights.
        FileNotFoundError: no such model.
    """
    model = AxialTransformer.from_pretrained(folder)
    place = Path(folder)
    about = read_record(place).about if (place / RUN_RECORD).is_file() else None
    described = "as stored" if about is None else "EMA"
    if weights == "raw":
        steps = sorted(place.glob("checkpoints/step-*"), key=lambda path: (len(path.name), path.name))
        if not steps:
            raise ValueError(f"{folder} keeps no raw weights: only a run's checkpoints do")
        model.load_state_dict(model_folders.load_tensors(require_inside(steps[-1], place), model.state_dict()))
        described = f"raw, {steps[-1].name}"
    return TrainedModel(
        model.to(choose_device(device)),
        described,
        None if about is None else about.source,
        DataConfig() if about is None else about.data,
        about is not None and about.uint16,
        None if about is None else about.class_names,
    )


def choose_device(device: str) -> torch.device:
    """The device of that name; auto takes CUDA if there is any.

    Raises:
        ValueError: this machine has no such device.
    """
    from axial_transformers.training import TrainConfig

    return TrainConfig(device=device).torch_device()
