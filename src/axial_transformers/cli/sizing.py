"""Costs of training as axial inspect prints them: memory of a device, operations and time."""

from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

from axial_transformers.cli.console import engineering
from axial_transformers.cli.machine import SHARE_OF_MEMORY
from axial_transformers.costs.training_step import (
    Hardware,
    Memory,
    device_batch,
    largest_batch,
    memory,
    needed_memory,
    room_for_tensors,
    step_operations,
    step_seconds,
)
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.training import TrainConfig

PAPER_STEPS = 200_000
"""Steps of the published setting."""


def size(
    model: AxialTransformerConfig, training: TrainConfig, hardware: Hardware, here: str | None = None
) -> dict[str, Any]:
    """Costs of a run, as JSON holds them: bytes, operations, seconds.

    Args:
        here: type of this machine's device, if that is the hardware: what is no tensor counts then.

    Raises:
        ValueError: the batch does not divide among the devices.
    """
    seconds = step_seconds(model, training, hardware)
    again = replace(training, checkpoint_blocks=True)
    return {
        "hardware": asdict(hardware),
        "precision": training.precision,
        "batch_size": training.batch_size,
        "device_batch": device_batch(training, hardware.devices),
        "sharded": training.shard and hardware.devices > 1,
        "memory_bytes": {
            "blocks_kept": _memory(model, replace(training, checkpoint_blocks=False), hardware, here),
            "blocks_computed_again": _memory(model, again, hardware, here),
        },
        "operations_per_step": step_operations(model, training),
        "seconds_per_step": seconds,
        "examples_per_second": training.batch_size / seconds,
        "seconds_of_200k_steps": PAPER_STEPS * seconds,
        "steps": training.steps,
        "seconds_of_all_steps": training.steps * seconds,
    }


def rows(found: dict[str, Any], here: bool = False) -> dict[str, dict[str, str]]:
    """The same as text: one table, with its title; `here`: the hardware is this machine."""
    hardware, steps = found["hardware"], found["steps"]
    kept, again = found["memory_bytes"].values()
    share = SHARE_OF_MEMORY if here else 1.0
    devices = f"{hardware['devices']} device" + "s" * (hardware["devices"] > 1)
    reached = f"{hardware['utilisation']:.0%} of {hardware['rate']:.3g} TFLOP/s"
    table = {
        "on each device": f"{found['device_batch']} examples at a time" + ", weights in shares" * found["sharded"],
        "weights, gradients": f"{engineering(kept['weights'])}B + {engineering(kept['gradients'])}B",
        "moments, averaged weights": f"{engineering(kept['adam'])}B + {engineering(kept['average'])}B",
        "gathered for a while": f"{engineering(kept['gathered'])}B",
        "activations": f"{engineering(kept['activations'])}B, or {engineering(again['activations'])}B computed again",
        "together": _verdict(kept, hardware["memory"], share),
        "with checkpoint-blocks": _verdict(again, hardware["memory"], share),
        "operations of a step": engineering(found["operations_per_step"]),
        f"at {reached}": f"{found['seconds_per_step']:.3g} s a step, {found['examples_per_second']:,.0f} examples/s",
        **({} if here else {f"{PAPER_STEPS:,} steps": _duration(found["seconds_of_200k_steps"])}),
        f"{steps:,} steps, as set": _duration(found["seconds_of_all_steps"]),
    }
    if not found["sharded"]:
        del table["gathered for a while"]
    if here:
        devices = "this machine"
    return {f"training on {devices}, {found['batch_size']} examples a step in {found['precision']}": table}


def _memory(
    model: AxialTransformerConfig, training: TrainConfig, hardware: Hardware, here: str | None
) -> dict[str, int]:
    found: Memory = memory(model, training, hardware.devices)
    needed = found.total
    if here is not None:
        needed = needed_memory(model, training, hardware.devices, here)
        room = room_for_tensors(training, here, SHARE_OF_MEMORY * hardware.memory * 1e9)
        hardware = replace(hardware, memory=max(1.0, room) / 1e9)
    return {
        **asdict(found),
        "total": found.total,
        "needed": needed,
        "largest_device_batch": largest_batch(model, training, hardware),
    }


def _verdict(found: dict[str, int], limit: float, share: float) -> str:
    fits = "fits into" if found["needed"] <= share * limit * 1e9 else "[red]does not fit into[/red]"
    return (
        f"{engineering(found['needed'])}B, {fits} {limit:.3g} GB; up to {found['largest_device_batch']:,} at a time do"
    )


def _duration(seconds: float) -> str:
    return f"{seconds / 86400:,.1f} days" if seconds >= 2 * 86400 else str(timedelta(seconds=round(seconds)))
