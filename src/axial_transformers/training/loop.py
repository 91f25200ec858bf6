"""The training loop."""

import copy
import dataclasses
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from axial_transformers.files import written_whole
from axial_transformers.layers.blocks import checkpoint_blocks, compile_blocks
from axial_transformers.likelihood import random_slice_loss
from axial_transformers.training.batches import Examples, check_fit, check_share, draw_batch
from axial_transformers.training.config import TrainConfig
from axial_transformers.training.interrupts import Interrupts
from axial_transformers.training.metrics import Meter, MetricsLog, NonFiniteLoss, check_tensorboard
from axial_transformers.training.optimiser import adam, ema_decay, learning_rate, update_average
from axial_transformers.training.order import Stream, random_bits, step_positions
from axial_transformers.training.processes import Processes
from axial_transformers.training.progress import ProgressDisplay
from axial_transformers.training.spread import Objective, gathered, shard_blocks, spread, whole
from axial_transformers.training.state import SETTINGS, Checkpoints, State, export, open_run

Loss = Callable[..., Tensor]
Callback = Callable[[Any, int], Mapping[str, float] | None]
Ending = Literal["finished", "time limit", "interrupted"]

STEPS_BETWEEN_READS = 10
"""On an accelerator; reading a loss waits for it, and a queue of work that runs dry costs more than late news."""


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """How a run ended."""

    ending: Ending
    """All steps were made, or the time was up, or SIGINT or SIGTERM came and `resume` continues."""
    step: int
    """Updates made, over all resumes."""
    seconds: float
    """Wall clock spent, over all resumes."""
    best_step: int | None
    """The step whose averaged weights were best and are exported; None where there was no evaluation."""
    best_bits_per_dim: float | None
    """What the evaluation gave for them."""


def train(
    model: Any,
    examples: Examples,
    config: TrainConfig,
    folder: str | Path,
    *,
    loss: Loss = random_slice_loss,
    evaluate: Callback | None = None,
    sample: Callback | None = None,
    resume: bool = False,
    about: Mapping[str, Any] | None = None,
) -> TrainResult:
    """Trains `model` in place, leaving in `folder` what `from_pretrained` reads and what a resume needs.

    The folder gets config.json and model.safetensors: the averaged weights, those of the best evaluation if there was
    one, else the newest. Beside them: train.json, metrics.jsonl, checkpoints/. A resumed run continues bitwise as if it
    had never been interrupted (float32, same machine).

    Args:
        model: has `config` (a dataclass), `slices` and `save_pretrained`, as AxialTransformer has.
        examples: the training set.
        config: settings; a resume may change all but the seed and the batch size.
        folder: new or empty, unless `resume`.
        loss: `loss(model, x [B, *A, C], label=[B] or None, channel=[B])`, the scalar mean in nats/dim.
        evaluate: `evaluate(averaged_model, step)`, figures to log, of which "bits_per_dim" decides the best.
        sample: `sample(averaged_model, step)`, called at intervals for what it does; may return figures to log.
        resume: continue from the newest intact checkpoint; start afresh where there is none.
        about: what else JSON can hold of the run's origin, for train.json.

    Raises:
        ValueError: model, data and settings do not fit each other, or are not those of the run to resume.
        NonFiniteLoss: a ValueError; training diverged, the newest checkpoint holds what was last good.
        FileExistsError: the folder holds something already.
        OSError: something could not be read or written there.
    """
    with Processes(config.torch_device()) as processes:
        run = Run(model, examples, config, Path(folder), loss, resume, about, processes)
        return _train(run, config, evaluate, sample)


def _train(run: "Run", config: TrainConfig, evaluate: Callback | None, sample: Callback | None) -> TrainResult:
    counters = run.state.counters
    with Interrupts() as interrupts, run.log, ProgressDisplay(config, counters, run.processes.first) as progress:
        if counters.step:
            progress.say(f"resumed at step {counters.step}")
        while (ending := run.ending(interrupts)) is None:
            run.update()
            progress.update(counters, run.meter)
            if counters.step % config.log_every == 0:
                run.log.write(counters.step, run.figures())
            if counters.step % config.save_every == 0:
                run.save()
            if evaluate and counters.step % config.evaluate_every == 0:
                run.evaluate(evaluate)
            if sample and counters.step % config.sample_every == 0:
                run.show(sample)
        run.save()
        if evaluate and ending != "interrupted" and counters.evaluated_step != counters.step:
            run.evaluate(evaluate)
    return TrainResult(
        ending=ending,
        step=counters.step,
        seconds=counters.seconds,
        best_step=counters.best_step,
        best_bits_per_dim=counters.best_bits_per_dim,
    )


class Run:
    """A training run: what `train` does between its decisions."""

    def __init__(
        self,
        model: Any,
        examples: Examples,
        config: TrainConfig,
        folder: Path,
        loss: Loss,
        resume: bool,
        about: Mapping[str, Any] | None,
        processes: Processes,
    ) -> None:
        check_fit(model, examples, config)
        check_share(config, processes)
        if config.tensorboard:
            check_tensorboard()
        self.examples, self.config, self.folder, self.processes = examples, config, folder, processes
        self.device = processes.device
        if processes.first:
            open_run(folder, resume)
        processes.wait()

        model.to(self.device).train()
        processes.copy_from_first(model)
        average = copy.deepcopy(model).eval().requires_grad_(False)
        self.skeleton = copy.deepcopy(average).to("meta")
        self.objective = spread(Objective(model, loss), processes, config.shard)
        if config.shard and processes.count > 1:
            shard_blocks(average)
        self.state = State(model, average, adam(model, config))
        identity = {
            "data": {"fingerprint": examples.fingerprint},
            "training": {"seed": config.seed, "batch_size": config.batch_size},
            "model": dataclasses.asdict(model.config),
        }
        self.checkpoints = Checkpoints(folder / "checkpoints", identity, processes)
        self.checkpoints.restore(self.state)
        if config.checkpoint_blocks:
            checkpoint_blocks(model)
        if config.compile:
            compile_blocks(model)

        if processes.first:
            with written_whole(folder / SETTINGS) as aside:
                settings = {**identity, "training": dataclasses.asdict(config), "about": about}
                aside.write_text(json.dumps(settings, indent=2) + "\n")
        self.log = MetricsLog(folder if processes.first else None, self.state.counters.step, config.tensorboard)
        self.meter = Meter(config.batch_size, every=1 if self.device.type == "cpu" else STEPS_BETWEEN_READS)
        self.started = time.monotonic() - self.state.counters.seconds

    def ending(self, interrupts: Interrupts) -> Ending | None:
        """Why the run ends now; None if it goes on."""
        counters, limit = self.state.counters, self.config.time_limit
        if counters.step >= self.config.steps:
            return "finished"
        if limit is not None and self.processes.any(counters.seconds >= 60 * limit):
            return "time limit"
        return "interrupted" if self.processes.any(interrupts.asked) else None

    def update(self) -> None:
        """One step."""
        state, config, step = self.state, self.config, self.state.counters.step
        # Seeded anew each step: a resume draws the same dropout, whatever evaluations drew in between.
        draw = step * self.processes.count + self.processes.rank
        torch.manual_seed(int(random_bits(config.seed, Stream.DROPOUT, draw)[0]))
        state.optimiser.zero_grad()
        nats = self._accumulate_gradients(step)
        norm = whole(clip_grad_norm_(state.model.parameters(), config.clip_norm))
        self._measure(step + 1, nats, norm)
        for group in state.optimiser.param_groups:
            group["lr"] = learning_rate(step, config)
        state.optimiser.step()
        update_average(state.average, state.model, ema_decay(step, config))
        state.counters.step = step + 1
        state.counters.seconds = time.monotonic() - self.started

    def figures(self) -> dict[str, float]:
        """What metrics.jsonl says of the steps since it last did."""
        counters = self.state.counters
        return {
            **self.meter.line(),
            "learning_rate": learning_rate(counters.step - 1, self.config),
            "seconds": counters.seconds,
        }

    def save(self) -> None:
        """Write a checkpoint; export its average too, while no evaluation has chosen one."""
        with self.meter.paused():  # which reads the losses first: nothing that is not finite is ever saved
            self.checkpoints.save(self.state)
            if self.state.counters.best_step is None:
                self._export()

    def evaluate(self, callback: Callback) -> None:
        """Save, for a kill may come while it lasts; evaluate the averaged weights; export them if they are the best."""
        self.save()
        counters = self.state.counters
        figures = self.show(callback, "validation_")
        bits_per_dim = self.processes.from_first(figures["bits_per_dim"] if self.processes.first else 0.0)
        counters.evaluated_step = counters.step
        if counters.best_bits_per_dim is None or bits_per_dim < counters.best_bits_per_dim:
            counters.best_step, counters.best_bits_per_dim = counters.step, bits_per_dim
            self._export()
        self.checkpoints.save(self.state)

    def show(self, callback: Callback, prefix: str = "") -> Mapping[str, float]:
        """Call back with the averaged weights, in the first process alone, and log the figures that come of it."""
        average = self._average()
        with self.meter.paused(), torch.no_grad():
            figures = (callback(average, self.state.counters.step) or {}) if self.processes.first else {}
        if figures:
            self.log.write(self.state.counters.step, {prefix + name: value for name, value in figures.items()})
        return figures

    def _accumulate_gradients(self, step: int) -> Tensor:
        config, model, processes = self.config, self.state.model, self.processes
        total = torch.zeros((), device=self.device)
        mine = step_positions(step, config.batch_size, processes.rank, processes.count)
        for positions in mine.reshape(config.accumulate, -1):
            batch = draw_batch(self.examples, model.slices, model.config.num_classes, config, positions)
            values, label, channel = batch.to(self.device)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=config.precision == "bfloat16"):
                nats = self.objective(values, label, channel) / config.accumulate
            nats.backward()
            total += nats.detach()
        return processes.mean(total)

    def _average(self) -> Any:
        """The averaged weights as a model that any process can use alone."""
        return gathered(self.skeleton, self.state.average) if self.config.shard else self.state.average

    def _export(self) -> None:
        average = self._average()
        if self.processes.first:
            export(average, self.folder)

    def _measure(self, step: int, nats: Tensor, norm: Tensor) -> None:
        try:
            self.meter.add(step, nats, norm)
        except NonFiniteLoss as error:
            if error.step == step:  # noticed before the weights were touched
                self.checkpoints.save(self.state)
            kept = self.checkpoints.newest() or "nowhere, no checkpoint had been written"
            raise NonFiniteLoss(
                error.step, f"{error}: try a smaller learning rate; the last good state is in {kept}"
            ) from None
