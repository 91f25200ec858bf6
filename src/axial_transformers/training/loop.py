"""The training loop."""

import copy
import dataclasses
import json
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from axial_transformers.costs.machine import keep_freed_memory, matmul_rate
from axial_transformers.data.workers import deaths_of_workers
from axial_transformers.layers.blocks import checkpoint_blocks, compile_blocks
from axial_transformers.likelihood.bits import random_slice_loss
from axial_transformers.progress import Display
from axial_transformers.storage.files import written_whole
from axial_transformers.training.batches import Examples, batches, check_fit, check_share
from axial_transformers.training.checkpoints import SETTINGS, Checkpoints, State, export, open_run
from axial_transformers.training.config import TrainConfig
from axial_transformers.training.display import figures
from axial_transformers.training.example_order import Stream, random_bits
from axial_transformers.training.interrupts import Interrupts
from axial_transformers.training.metrics import VALIDATION, Meter, MetricsLog, NonFiniteLoss, check_tensorboard
from axial_transformers.training.optimiser import adam, ema_decay, learning_rate, update_average
from axial_transformers.training.parallelism import Objective, exchange, gathered, shard_blocks, spread, whole
from axial_transformers.training.processes import Processes

Loss = Callable[..., Tensor]
Callback = Callable[[Any, int], Mapping[str, float] | None]
Ending = Literal["finished", "time limit", "interrupted"]

STEPS_BETWEEN_WAITS = 10
"""Between reading losses from an accelerator, and between asking all processes whether to end; both wait for the
device, and a queue of work that runs dry costs more than late news."""


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
    operations: int | None = None,
    progress: Display | None = None,
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
        operations: what an example costs, as `costs.training_operations` counts, for the figure of utilisation.
        progress: shows how far the run is, such as `progress.Bar`; None shows nothing.

    Raises:
        ValueError: model, data and settings do not fit each other, or are not those of the run to resume.
        NonFiniteLoss: a ValueError; training diverged, the newest checkpoint holds what was last good.
        FileExistsError: the folder holds something already.
        OSError: something could not be read or written there.
        ConnectionError: an OSError; another process of the run has ended.
    """
    with Processes(config.torch_device()) as processes:
        run = Run(model, examples, config, Path(folder), loss, resume, about, operations, processes)
        return _train(run, config, evaluate, sample, progress or Display())


def _train(
    run: "Run", config: TrainConfig, evaluate: Callback | None, sample: Callback | None, progress: Display
) -> TrainResult:
    counters = run.state.counters
    with (
        deaths_of_workers(),
        run.interrupts,
        closing(run),
        run.log,
        progress,
    ):
        progress.start(config.steps, counters.step)
        if counters.step:
            progress.say(f"resumed at step {counters.step}")
        while (ending := run.ending()) is None:
            if evaluate and run.evaluation_due():
                run.evaluate(evaluate)
                continue
            run.update()
            progress.update(counters.step, figures(config, counters, run.meter))
            if counters.step % config.log_every == 0:
                run.log.write(counters.step, run.figures())
            if counters.step % config.save_every == 0:
                run.save()
            if sample and counters.step % config.sample_every == 0:
                run.show(sample)
        run.save()
        if evaluate and ending != "interrupted" and counters.evaluated_step != counters.step:
            run.evaluate(evaluate)
            ending = "interrupted" if run.cut_short else ending
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
        operations: int | None,
        processes: Processes,
    ) -> None:
        check_fit(model, examples, config)
        check_share(config, processes)
        if config.tensorboard:
            check_tensorboard()
        self.examples, self.config, self.folder, self.processes = examples, config, folder, processes
        self.device = processes.device
        if self.device.type == "cpu":
            keep_freed_memory()
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
        self.batches = batches(
            examples, model.slices, model.config.num_classes, config, processes, self.state.counters.step
        )
        if config.checkpoint_blocks:
            checkpoint_blocks(model)
        if config.compile:
            compile_blocks(model)

        if processes.first:
            with written_whole(folder / SETTINGS) as aside:
                settings = {**identity, "training": dataclasses.asdict(config), "about": about}
                aside.write_text(json.dumps(settings, indent=2) + "\n")
        self.log = MetricsLog(folder if processes.first else None, self.state.counters, config.tensorboard)
        every = 1 if self.device.type == "cpu" else STEPS_BETWEEN_WAITS
        self.meter = Meter(self.device, config.batch_size, every, operations and self._rate() / operations)
        self.started = time.monotonic() - self.state.counters.seconds
        self.interrupts = Interrupts()
        self.cut_short = False

    def _rate(self) -> float:
        """Operations/s of matrix products, all devices together."""
        dtype = torch.bfloat16 if self.config.precision == "bfloat16" else torch.float32
        return self.processes.count * matmul_rate(self.device, dtype)

    def close(self) -> None:
        """Draws no more batches, and lets go of what would hold the processes together, see `Processes`."""
        self.batches.close()
        del self.objective

    def ending(self) -> Ending | None:
        """Why the run ends now; None if it goes on. A lone process is asked after each step, many now and then."""
        counters, limit = self.state.counters, self.config.time_limit
        if counters.step >= self.config.steps:
            return "finished"
        if self.cut_short:
            return "interrupted"
        if self.processes.count > 1 and counters.step % STEPS_BETWEEN_WAITS:
            return None
        if limit is not None and self.processes.any(counters.seconds >= 60 * limit):
            return "time limit"
        return "interrupted" if self.processes.any(self.interrupts.asked) else None

    def update(self) -> None:
        """One step."""
        state, config, step = self.state, self.config, self.state.counters.step
        # Seeded anew each step: a resume draws the same dropout, whatever evaluations drew in between.
        draw = step * self.processes.count + self.processes.rank
        torch.manual_seed(int(random_bits(config.seed, Stream.DROPOUT, draw)[0]))
        state.optimiser.zero_grad()
        nats = self._accumulate_gradients()
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

    def evaluation_due(self) -> bool:
        """Whether the averaged weights of now are to be evaluated and have not been."""
        step = self.state.counters.step
        return step > 0 and step % self.config.evaluate_every == 0 and step != self.state.counters.evaluated_step

    def evaluate(self, callback: Callback) -> None:
        """Save, for an end may come while it lasts; evaluate the averaged weights; export them if they are the best.

        An end that is asked for cuts it short; a resume begins with it.
        """
        self.save()
        counters = self.state.counters
        figures = self.show(callback, VALIDATION)
        if self.processes.any(figures is None):
            self.cut_short = True
            return
        assert figures is not None
        bits_per_dim = self.processes.from_first(figures["bits_per_dim"] if self.processes.first else 0.0)
        counters.evaluated_step = counters.step
        if counters.best_bits_per_dim is None or bits_per_dim < counters.best_bits_per_dim:
            counters.best_step, counters.best_bits_per_dim = counters.step, bits_per_dim
            self._export()
        self.checkpoints.save(self.state)

    def show(self, callback: Callback, prefix: str = "") -> Mapping[str, float] | None:
        """Call back with the averaged weights, in the first process alone, and log the figures that come of it.

        None where an end was asked for, which a deadline may follow: no more is waited for.
        """
        average, step = self._average(), self.state.counters.step
        with self.meter.paused(), torch.no_grad():
            figures = self.interrupts.until_asked(lambda: callback(average, step) or {}) if self.processes.first else {}
        if figures:
            self.log.write(step, {prefix + name: value for name, value in figures.items()})
        return figures

    def _accumulate_gradients(self) -> Tensor:
        config = self.config
        total = torch.zeros((), device=self.device)
        for part in range(1, config.accumulate + 1):
            with self.meter.waiting_for_data():
                values, label, channel = next(self.batches).to(self.device)
            with exchange(self.objective, now=part == config.accumulate):
                with torch.autocast(self.device.type, torch.bfloat16, enabled=config.precision == "bfloat16"):
                    nats = self.objective(values, label, channel) / config.accumulate
                nats.backward()
            total += nats.detach()
        return self.processes.mean(total)

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
