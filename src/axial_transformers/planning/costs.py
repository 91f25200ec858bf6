"""What a step of training costs, and whether a machine has it."""

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from axial_transformers.messages import engineering
from axial_transformers.models import AxialTransformerConfig
from axial_transformers.planning.flops import duration, parameters, training_flops
from axial_transformers.planning.machine import Machine
from axial_transformers.planning.step_memory import TrainingSettings, device_batch, memory, needed_memory


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What a step of training a model needs on a machine, and whether it fits there.

    Raises:
        ValueError: the batch does not divide among the devices.
    """

    model: AxialTransformerConfig
    training: TrainingSettings
    machine: Machine
    examples: int | None = None
    """Number of examples that train; None: not known."""

    def __post_init__(self) -> None:
        device_batch(self.training, self.machine.devices)

    @cached_property
    def parameters(self) -> int:
        return sum(parameters(self.model).values())

    @cached_property
    def needed(self) -> int:
        """Bytes that a step needs on each device, what is no tensor included."""
        return needed_memory(self.model, self.training, self.machine.devices, self.machine.device)

    @property
    def fits(self) -> bool:
        """True if each device has room for a step."""
        return self.needed <= self.machine.room

    @property
    def flops(self) -> int:
        """FLOPs of a step on all devices, without recomputed blocks."""
        return training_flops(self.model) * self.training.batch_size

    @property
    def step_seconds(self) -> float | None:
        """Seconds of a step at the machine's rate and utilisation; None if one of them is not known."""
        machine = self.machine
        if machine.rate is None or machine.utilisation is None:
            return None
        return self.flops / (machine.devices * machine.rate * 1e12 * machine.utilisation)

    @property
    def shortage(self) -> str:
        needed, room = self.needed / 1e9, self.machine.room / 1e9
        return f"a training step would need about {needed:.3g} GB, and {room:.3g} GB are free for it here"

    def _memory(self, recompute: bool) -> dict[str, int]:
        other = replace(self, training=replace(self.training, checkpoint_blocks=recompute))
        found = memory(other.model, other.training, other.machine.devices)
        return {**asdict(found), "total": found.total, "needed": other.needed}

    def to_json(self) -> dict[str, Any]:
        """Return the costs for JSON: bytes, FLOPs, seconds."""
        training, seconds = self.training, self.step_seconds
        return {
            "hardware": asdict(self.machine),
            "precision": training.precision,
            "batch_size": training.batch_size,
            "device_batch": device_batch(training, self.machine.devices),
            "sharded": training.shard and self.machine.devices > 1,
            "memory_bytes": {"blocks_kept": self._memory(False), "blocks_computed_again": self._memory(True)},
            "flops_per_step": self.flops,
            "seconds_per_step": seconds,
            "steps": training.steps,
            "seconds_of_all_steps": seconds and training.steps * seconds,
        }


def describe(costs: Costs) -> dict[str, str]:
    """Return training and its costs as rows (name, value)."""
    training, machine = costs.training, costs.machine
    again = ", blocks computed again" if training.checkpoint_blocks else ""
    shares = ", weights in shares" if training.shard and machine.devices > 1 else ""
    devices = f" on each of {machine.devices} devices" if machine.devices > 1 else ""
    part = f"{device_batch(training, machine.devices)} at a time{devices}"
    return {
        "parameters": f"{costs.parameters:,}",
        "completion": _completion(costs.model),
        "steps": f"{training.steps:,}" + (f", {_epochs(costs)} epochs" if costs.examples else ""),
        "batches": f"of {training.batch_size}, {part}{again}{shares}",
        "precision": training.precision,
        "memory": f"about {engineering(costs.needed)}B{_room(costs, costs.needed)}",
        "time": _time(costs),
    }


def describe_memory(costs: Costs) -> dict[str, str]:
    """Return FLOPs and memory of a step, and its memory with blocks kept and recomputed, as rows (name, value)."""
    found = costs.to_json()["memory_bytes"]
    kept, again = found["blocks_kept"], found["blocks_computed_again"]
    parts = ("weights", "gradients", "adam", "average", "gathered", "activations")
    flops = {"FLOPs": f"{engineering(costs.flops)}FLOP a step"}
    return (
        flops
        | {name: f"{engineering(kept[name])}B" for name in parts if kept[name]}
        | {
            title: f"{engineering(each['needed'])}B{_room(costs, each['needed'])}"
            for title, each in {"blocks kept": kept, "with checkpoint-blocks": again}.items()
        }
    )


def _room(costs: Costs, needed: int) -> str:
    room = costs.machine.room / 1e9
    fits = "fits into" if needed <= costs.machine.room else "does not fit into"
    return f", {fits} {room:.3g} GB" if room < float("inf") else ""


def _epochs(costs: Costs) -> str:
    count = costs.training.steps * costs.training.batch_size / (costs.examples or 1)
    return f"{float(f'{count:.3g}'):,g}"


def _time(costs: Costs) -> str:
    seconds, machine = costs.step_seconds, costs.machine
    if seconds is None:
        return "said after ten steps"
    each = f"{seconds:.3g} s a step at {machine.utilisation:.0%} of {machine.rate:.3g} TFLOP/s"
    return f"about {duration(costs.training.steps * seconds)} for {costs.training.steps:,} steps, {each}"


def _completion(model: AxialTransformerConfig) -> str:
    """Return which options of axial complete are exact: those whose known positions come first in generation order."""
    axes = {"--rows": max(0, len(model.shape) - 2), "--channels": len(model.shape), "--frames": 0}
    if len(model.shape) < 3:
        del axes["--frames"]
    if model.channels == 1:
        del axes["--channels"]
    order = model.bijection.order
    exact = [name for name, axis in axes.items() if not ((order[1:, axis] == 0) & (order[:-1, axis] > 0)).any()]
    others = [name for name in axes if name not in exact]
    if not others:
        return f"exact with {' and '.join(exact)}"
    return f"exact with {' and '.join(exact)}; with {' and '.join(others)}, add --approximate"
