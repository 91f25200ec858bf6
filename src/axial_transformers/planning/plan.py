"""The plan of a run, and whether a machine has what it needs."""

from collections.abc import Collection, Iterator, Sized
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, Generic, TypeVar

from axial_transformers.models import AxialTransformerConfig
from axial_transformers.planning.flops import duration, engineering, parameters, training_flops
from axial_transformers.planning.machine import Machine
from axial_transformers.planning.step_memory import TrainingSettings, device_batch, memory, needed_memory

MIN_DIM = 32
CHANGEABLE = ("training.accumulate", "training.checkpoint-blocks", "model.dim")
"""Settings that may be changed to make a step fit, in this order."""

Settings = TypeVar("Settings", bound=TrainingSettings)


@dataclass(frozen=True, kw_only=True)
class Plan(Generic[Settings]):
    """A model and the settings of its training, on a machine: what a step needs there, and whether it fits."""

    model: AxialTransformerConfig
    training: Settings
    machine: Machine
    examples: int | None
    """Number of examples that train; None: not known."""

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

    def fitted(self, changeable: Collection[str] = (), offered: Collection[str] = CHANGEABLE) -> "Plan[Settings]":
        """Return the plan that fits and differs least from this one.

        Args:
            changeable: those of `CHANGEABLE` that may be changed.
            offered: those of `CHANGEABLE` that the message of the error may name.

        Raises:
            ValueError: changing them is not enough; the message lists options with which a step would fit.
        """
        if found := next(self._fitting(changeable), None):
            return found
        same_model = [*self._fitting(CHANGEABLE[:2])]
        would = [other.options(self) for other in same_model or islice(self._fitting(offered), 1)]
        if not would:
            raise ValueError(f"{self.shortage}: make the examples smaller (--data.size, --data.frames)")
        raise ValueError(f"{self.shortage}: {' or '.join(would)} would fit")

    @property
    def shortage(self) -> str:
        needed, room = self.needed / 1e9, self.machine.room / 1e9
        return f"a training step would need about {needed:.3g} GB, and {room:.3g} GB are free for it here"

    def options(self, before: "Plan[Settings]") -> str:
        """Return the options of the command line that lead here from `before`."""
        words = []
        if self.training.accumulate != before.training.accumulate:
            words.append(f"--training.accumulate {self.training.accumulate}")
        if self.training.checkpoint_blocks and not before.training.checkpoint_blocks:
            words.append("--training.checkpoint-blocks")
        if self.model.dim != before.model.dim:
            words.append(f"--model.dim {self.model.dim} --model.heads {self.model.heads}")
        return " ".join(words)

    def _fitting(self, changeable: Collection[str]) -> Iterator["Plan[Settings]"]:
        """Yield plans that fit: of each way to save memory, the one with the fewest parts of a batch."""
        training, share = self.training, self.training.batch_size // self.machine.devices
        parts = [training.accumulate]
        if "training.accumulate" in changeable:
            parts = [count for count in range(training.accumulate, share + 1) if share % count == 0]
        for model, recompute in self._savings(changeable):
            plans = [
                replace(self, model=model, training=replace(training, accumulate=count, checkpoint_blocks=recompute))
                for count in parts
            ]
            if plans[-1].fits:
                yield next(each for each in plans if each.fits)

    def _savings(self, changeable: Collection[str]) -> Iterator[tuple[AxialTransformerConfig, bool]]:
        """Yield the model as it is, then smaller and smaller; and True if blocks are computed again."""
        model, recompute = self.model, self.training.checkpoint_blocks
        yield model, recompute
        if "training.checkpoint-blocks" in changeable and not recompute:
            recompute = True
            yield model, recompute
        while "model.dim" in changeable and model.dim % 4 == 0 and model.dim >= 2 * MIN_DIM:
            dim, heads = model.dim // 2, model.heads
            heads = heads // 2 if heads % 2 == 0 else heads
            if dim % heads:
                return
            model = replace(model, dim=dim, heads=heads)
            yield model, recompute

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


def plan(
    config: AxialTransformerConfig, training: Settings, examples: Sized | None, machine: Machine
) -> Plan[Settings]:
    """Return the plan to train a model on a machine.

    `auto` is resolved on this machine. Another one is assumed to multiply bfloat16.

    Args:
        examples: those that train, if they are known.

    Raises:
        ValueError: the batch does not divide among the devices, or this machine lacks the device.
    """
    if machine.is_this:
        training = training.resolve_auto()
    elif training.precision == "auto":
        training = replace(training, precision="bfloat16")
    device_batch(training, machine.devices)
    return Plan(model=config, training=training, machine=machine, examples=None if examples is None else len(examples))


def describe(plan: Plan[Any]) -> dict[str, str]:
    """Return the plan as rows (name, value)."""
    training, machine = plan.training, plan.machine
    again = ", blocks computed again" if training.checkpoint_blocks else ""
    shares = ", weights in shares" if training.shard and machine.devices > 1 else ""
    devices = f" on each of {machine.devices} devices" if machine.devices > 1 else ""
    part = f"{device_batch(training, machine.devices)} at a time{devices}"
    return {
        "parameters": f"{plan.parameters:,}",
        "completion": _completion(plan.model),
        "steps": f"{training.steps:,}" + (f", {_epochs(plan):.3g} epochs" if plan.examples else ""),
        "batches": f"of {training.batch_size}, {part}{again}{shares}",
        "precision": training.precision,
        "FLOPs": f"{engineering(plan.flops)}FLOP a step",
        "memory": f"about {engineering(plan.needed)}B{_room(plan, plan.needed)}",
        "time": _time(plan),
    }


def describe_memory(plan: Plan[Any]) -> dict[str, str]:
    """Return the parts of a step's memory, and what it needs with blocks kept and recomputed, as rows (name, value)."""
    found = plan.to_json()["memory_bytes"]
    kept, again = found["blocks_kept"], found["blocks_computed_again"]
    parts = ("weights", "gradients", "adam", "average", "gathered", "activations")
    return {name: f"{engineering(kept[name])}B" for name in parts if kept[name]} | {
        title: f"{engineering(each['needed'])}B{_room(plan, each['needed'])}"
        for title, each in {"blocks kept": kept, "with checkpoint-blocks": again}.items()
    }


def _room(plan: Plan[Any], needed: int) -> str:
    room = plan.machine.room / 1e9
    fits = "fits into" if needed <= plan.machine.room else "does not fit into"
    return f", {fits} {room:.3g} GB" if room < float("inf") else ""


def _epochs(plan: Plan[Any]) -> float:
    return float(plan.training.steps * plan.training.batch_size / (plan.examples or 1))


def _time(plan: Plan[Any]) -> str:
    seconds, machine = plan.step_seconds, plan.machine
    if seconds is None:
        return "said after ten steps"
    each = f"{seconds:.3g} s a step at {machine.utilisation:.0%} of {machine.rate:.3g} TFLOP/s"
    return f"{each}, {duration(plan.training.steps * seconds)} for {plan.training.steps:,} steps"


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
