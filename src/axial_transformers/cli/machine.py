"""This machine: its room for a training step, the settings that fit, and the time that training takes here."""

import os
from dataclasses import replace

import torch

from axial_transformers.cli.settings import Preset
from axial_transformers.costs.measurements import free_memory, matmul_rate
from axial_transformers.costs.training_step import Hardware, needed_memory, step_seconds
from axial_transformers.training import TrainConfig
from axial_transformers.training.fitting import CHANGEABLE, Room, Sized, fitted

SHARE_OF_MEMORY = 0.9
"""Share of the free memory that a step may take by its estimate."""
UTILISATION = {("cpu", "float32"): 0.35, ("cpu", "bfloat16"): 0.15}
"""Usual shares of the rate of matrix products that training reaches (docs/training.md), to estimate its time."""
USUAL_UTILISATION = 0.4


def room(training: TrainConfig) -> Room | None:
    """The devices that torchrun or a lone process has, and the bytes that a step may take on each; None: unknown.

    Of several processes, each computes the same: from the memory that the machine has, not from what is free now.
    """
    device, processes = training.torch_device(), int(os.environ.get("WORLD_SIZE", 1))
    free = free_memory(device, whole=processes > 1)
    if free is None:
        return None
    sharing = int(os.environ.get("LOCAL_WORLD_SIZE", processes)) if device.type == "cpu" else 1
    return Room(processes, device.type, int(SHARE_OF_MEMORY * free / sharing))


def this_machine(training: TrainConfig, utilisation: float | None = None) -> Hardware:
    """Free memory of this machine, and the measured rate of its matrix products."""
    device, place = training.torch_device(), room(training)
    dtype = torch.bfloat16 if training.precision == "bfloat16" else torch.float32
    usual = UTILISATION.get((device.type, training.precision), USUAL_UTILISATION)
    return Hardware(
        devices=1 if place is None else place.devices,
        memory=float("inf") if place is None else place.memory / SHARE_OF_MEMORY / 1e9,
        rate=matmul_rate(device, dtype) / 1e12,
        utilisation=usual if utilisation is None else utilisation,
    )


def fitted_to_this_machine(preset: Preset) -> tuple[Preset, str | None]:
    """The preset with settings that fit into the memory, and a sentence about what was changed.

    Only what the recipe `custom` made up, and the user has not set, is changed.

    Raises:
        ValueError: a step does not fit; the message names options with which it would.
    """
    settings = preset.settings
    wanted, place = Sized(settings.model, settings.training), room(settings.training)
    if place is None or settings.training.batch_size % (place.devices * settings.training.accumulate):
        return preset, None  # what does not divide is refused where it is divided
    needed = needed_memory(*wanted, place.devices, place.device)
    if needed <= place.memory:
        return preset, None
    problem = (
        f"a training step would need about {needed / 1e9:.3g} GB, and {place.memory / 1e9:.3g} GB are free for it here"
    )
    changeable = [option for option in CHANGEABLE if option not in preset.given] if preset.name == "custom" else []
    if found := fitted(wanted, place, changeable):
        fitting = replace(settings, model=found.model, training=found.training)
        return replace(preset, settings=fitting), f"{problem}: set {found.options(wanted)}"
    same_model = preset.name != "custom"
    would = fitted(wanted, place, CHANGEABLE[:2] if same_model else CHANGEABLE) or fitted(wanted, place)
    if would is None:
        raise ValueError(f"{problem}: make the examples smaller (--data.size, --data.frames)")
    raise ValueError(f"{problem}: {would.options(wanted)} would fit")


def expected_seconds(preset: Preset) -> float:
    """Estimated time of all steps on this machine, without evaluations and samples."""
    settings = preset.settings
    return settings.training.steps * step_seconds(settings.model, settings.training, this_machine(settings.training))
