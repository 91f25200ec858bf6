"""The training loop: the life of a run, from its settings to its result.

     train
        |  Processes          connect the processes
        |  check_matches      refuse a model, examples and settings that do not match
        |  open_run           the first process takes the folder; a second run in it is refused
        |  RunRecord          what train.json holds
        |  _set_first_weights from another model or fitted to the examples, unless there is a checkpoint
        |  prepare_learner    send weights to all processes, restore the newest checkpoint, start the clock
        v
    +-> ending? -- finished, time limit, interrupted --> save --> last evaluation --> last samples --> RunState
    |   | none yet                                                (neither after an interrupt)
    |   v
    |   evaluation due? -- yes --> save, evaluate the EMA weights, export the best, save --+
    |   | no                                                                               |
    |   v                                                                                  |
    |   step: batch, loss, gradients, clip, learning rate, weights, EMA weights            |
    |   |                                                                                  |
    |   v                                                                                  |
    |   at their intervals: log a line, save a checkpoint, sample                          |
    |   many steps left out? go back to a checkpoint, at half the learning rates           |
    |   |                                                                                  |
    +---+----------------------------------------------------------------------------------+

A resume enters at the top, and continues with the step of its checkpoint. If a run was killed in an evaluation, a
resume begins with it.

All processes of a run go through this file together, and take the same branches. Each branch depends only on the
settings, the state, and what collective operations returned.
"""

import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import closing, nullcontext
from copy import copy
from dataclasses import dataclass, replace
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import Any

import torch

from axial_transformers.data import DataConfig, Examples
from axial_transformers.likelihood.bits import random_slice_loss
from axial_transformers.likelihood.evaluation import Fill
from axial_transformers.machine import CPU, machine_facts
from axial_transformers.models import AxialTransformer, AxialTransformerConfig, start
from axial_transformers.progress import Display
from axial_transformers.storage import import_extra
from axial_transformers.training.batches import check_matches, some_examples
from axial_transformers.training.checkpoints import Checkpoints, newest_checkpoint
from axial_transformers.training.config import RunConfig, TrainConfig
from axial_transformers.training.metrics import VALIDATION, Metric, MetricsLog, NonFiniteLoss
from axial_transformers.training.parallelism import Loss
from axial_transformers.training.processes import Interrupts, Processes
from axial_transformers.training.run_folder import Facts, RunRecord, export, open_run, read_run
from axial_transformers.training.run_page import PAGE, write_page
from axial_transformers.training.run_state import MANY, WINDOW, Ending, RunState, must_go_back
from axial_transformers.training.step import (
    STEPS_BETWEEN_WAITS,
    Learner,
    borrow,
    frozen_matrices,
    prepare_learner,
    step,
    train_alone,
)
from axial_transformers.wording import duration

FITTED_NUMBERS = 1 << 19
"""Numbers of examples to which the prediction of ordinal values is fitted."""

Evaluate = Callable[[AxialTransformer, int, Fill], Mapping[str, Metric]]
"""Takes the EMA model, the step and `Processes.fill`, which divides work among processes; all processes call it."""
Sample = Callable[[AxialTransformer, int], Mapping[str, Metric] | None]
"""Takes the EMA model and the step; may return metrics. Only the first process calls it."""


def train(  # noqa: PLR0913
    model: AxialTransformer,
    examples: Examples,
    config: TrainConfig | RunConfig,
    folder: str | Path,
    *,
    loss: Loss = random_slice_loss,
    evaluate: Evaluate | None = None,
    sample: Sample | None = None,
    resume: bool = False,
    start_from: str | Path | None = None,
    source: str | None = None,
    data: DataConfig | None = None,
    facts: Facts | None = None,
    progress: Display | None = None,
) -> RunState:
    """Train the weights of `model` in place; leave in `folder` what `from_pretrained` reads and what a resume needs.

    All else stays as it was: torch's generators, and the model's device, modes and frozen parts. The prediction of
    ordinal values is fitted to the examples if the model is new.

    The folder gets config.json and model.safetensors: the EMA weights (averaged) of the best evaluation, or the newest.
    Beside them are train.json, metrics.jsonl, checkpoints/ and index.html, the page of the run. A resumed run continues
    bitwise (float32, same machine; on CUDA only if `deterministic`).

    Args:
        model: an AxialTransformer, or a subclass.
        examples: the training set.
        config: a TrainConfig; or a RunConfig, which holds all settings of a run. A resume may change all but the seed,
            the batch size and the optimizer; with a TrainConfig, the rest of the run's settings stays.
        folder: new or empty, unless `resume`.
        loss: `loss(model, x [B, *A, C], label=[B] or None, channel=[B])`, the mean in nats/dim. With distribution
            augmentation it also gets cond=[B, *A, D]. What it draws from torch's generator, a resume does not repeat.
        evaluate: `evaluate(ema_model, step, fill)`, called in all processes, returns equal metrics in each;
            "bits_per_dim" decides the best. `likelihood.evaluate(..., fill=fill)` divides its work among them.
        sample: `sample(ema_model, step)`, called at intervals and at the end. It may return metrics, and images uint8
            [H, W] or [H, W, 3] for Weights & Biases.
        resume: continue from the newest checkpoint, if there is any.
        start_from: a model for the first weights, as `from_pretrained` names it. Shape and classes may differ
            (`models.start`).
        source, data: where the examples came from, for later commands, such as `axial evaluate`.
        facts: what train.json records beside the settings; None: what the examples tell.
        progress: such as `progress.Bar`; None shows nothing.

    Raises:
        TypeError: examples of another type.
        ValueError: model, data and settings do not fit each other or the run to resume.
        NonFiniteLoss: a ValueError; training diverged. The newest checkpoint has the last good state.
        FileExistsError: the folder is not empty.
        FolderInUse: an OSError; another process trains in the folder.
        OSError: something could not be read or written there, or the folder was moved or removed meanwhile.
        ConnectionError: an OSError; another process of the run has ended.
    """
    if not isinstance(examples, Examples):
        raise TypeError("examples must be Examples: data.examples_from makes them of arrays, tensors and data sets")
    folder = Path(folder)
    begun = read_run(folder) if resume else None
    named = {"start_from": start_from and str(start_from), "source": source, "data": data}
    run = _settings(config, model, begun, folder, named)
    training = run.training
    device = training.torch_device()
    progress = progress or Display()
    frozen = frozen_matrices(model) if training.vectors_only else nullcontext()
    with Processes(device) as processes, train_alone(training, device), borrow(model), frozen:
        check_matches(model, examples, training, processes)
        _require_packages(training)
        with open_run(folder, begun is not None) if processes.rank_zero else nullcontext():
            if run.model != model.config:
                model.config = run.model
            record = _record(run, facts or Facts.of(examples, model), processes, begun)
            if not newest_checkpoint(folder):
                _set_first_weights(model, examples, record, progress)
            processes.barrier()  # the folder is ready
            checkpoints = Checkpoints(folder, processes)
            learner = prepare_learner(model, examples, training, processes, checkpoints, loss, record.identity)
            made = learner.state.step
            if made > training.steps:
                raise ValueError(f"{folder} has made {made} steps already, more than training.steps={training.steps}")
            if processes.rank_zero:
                record.write(folder)
            log = MetricsLog(folder if processes.rank_zero else None, learner.state, training)
            return _Run(learner, checkpoints, log, evaluate, sample, progress).make_steps()


def _settings(
    config: TrainConfig | RunConfig,
    model: AxialTransformer,
    begun: RunRecord | None,
    folder: Path,
    named: Mapping[str, Any],
) -> RunConfig:
    """Return the settings of the whole run, of which nothing is open; `named` ones that are not None come first."""
    if isinstance(config, RunConfig):
        run = config
    elif begun:
        run = replace(begun.run, training=config)
    else:
        run = RunConfig(model=model.config, training=config)
    training = run.training.resolve_auto(begun.run.training if begun else None)
    given = {name: value for name, value in named.items() if value is not None}
    return replace(
        run, **given, model=decide_needs_label(model.config, training, begun), training=training, out=folder, open=()
    )


def decide_needs_label(
    model: AxialTransformerConfig, training: TrainConfig, begun: RunRecord | None
) -> AxialTransformerConfig:
    """Return the model's configuration, which needs labels if the run, resumed or new, has never hidden one."""
    hidden = training.label_dropout > 0 or (begun is not None and not begun.run.model.needs_label)
    return replace(model, needs_label=model.num_classes is not None and not hidden)


def _require_packages(training: TrainConfig) -> None:
    if training.tensorboard:
        import_extra("tensorboard", "tensorboard", "training.tensorboard=True")
    if training.wandb and find_spec("wandb") is None:
        raise ValueError(f"training.wandb={training.wandb} needs the package wandb: pip install wandb")


def _record(run: RunConfig, facts: Facts, processes: Processes, begun: RunRecord | None) -> RunRecord:
    """Return what train.json holds; of a run that goes on, the facts stay but for the data and the newest command."""
    if begun:
        facts = replace(begun.facts, fingerprint=facts.fingerprint, resumed_by=facts.command)
    facts = replace(facts, processes=processes.count, machine=machine_facts())
    return RunRecord(run=run, facts=facts)


def _set_first_weights(model: AxialTransformer, examples: Examples, record: RunRecord, progress: Display) -> None:
    """Start from another model, and say what of it could not be copied; or fit a new model's values to the examples."""
    trained = record.run.start_from
    if not trained:
        model.fit_values(some_examples(examples, FITTED_NUMBERS))
        return
    other = AxialTransformer.from_pretrained(trained)
    before = read_run(trained)
    classes = before.facts.class_names if before else None
    for line in start.start_from(model, other, trained, record.facts.class_names, classes):
        progress.say(line)


@dataclass
class _Run:
    """A run under way: its steps, and what it does between them.

    All processes of a run make the same calls at the same steps, since most methods are collective operations. The
    first process also writes the log and the page.
    """

    learner: Learner
    checkpoints: Checkpoints
    log: MetricsLog
    evaluate: Evaluate | None
    sample: Sample | None
    progress: Display

    @property
    def state(self) -> RunState:
        return self.learner.state

    @property
    def config(self) -> TrainConfig:
        return self.learner.config

    def make_steps(self) -> RunState:
        """Make steps, and what is due between them, until the run ends."""
        state = self.state
        with Interrupts() as interrupts, closing(self.learner), self.log, self.progress:
            self._begin()
            while not (ending := self._ending(interrupts)):
                if self.evaluate and self._evaluation_due():
                    self._evaluate(self.evaluate)
                else:
                    self._step()
            state.ending = ending
            self._finish()
            self._write_page(ending)
        return state

    def _begin(self) -> None:
        """Write the first page, and show where the run begins."""
        self.state.ending = None
        with self.learner.meter.pause():
            self._write_page("training")
        self.progress.say(f"curves and samples: {self.checkpoints.run / PAGE}")
        self.progress.start(self.config.steps, self.state.step)
        if self.state.step:
            self.progress.say(f"resumed at step {self.state.step}")

    def _ending(self, interrupts: Interrupts) -> Ending | None:
        """Return why the run ends now, or None. Several processes agree only every few steps."""
        step = self.state.step
        if step >= self.config.steps:
            return "finished"
        if self.learner.processes.count > 1 and step % STEPS_BETWEEN_WAITS:
            return None
        if step and self.learner.time.share(self.state.seconds) >= 1:
            return "time limit"
        if self.learner.processes.any(interrupts.asked):
            return "interrupted"
        return None

    def _evaluation_due(self) -> bool:
        step = self.state.step
        return step > 0 and step % self.config.evaluate_every == 0 and step != self.state.evaluated_step

    def _step(self) -> None:
        """Make a step, then what is due after it."""
        learner = self.learner
        state = self.state
        config = self.config
        try:
            step(learner)
        except NonFiniteLoss as error:
            raise self._diverged(str(error)) from None
        left = learner.time.left(config.steps - state.step, state.seconds / state.step)
        self.progress.update(state.step, learner.meter.describe(left))
        if state.step % config.log_every == 0:
            self.checkpoints.require_folder()
            self.log.write(state.step, learner.line())
        if state.step % config.save_every == 0:
            self._save()
        if self.sample and state.step % config.sample_every == 0:
            self._sample(self.sample)
        if must_go_back(state):
            self._go_back()

    def _save(self) -> None:
        """Write a checkpoint; export its EMA weights if no evaluation has chosen the best.

        Raises:
            NonFiniteLoss: a loss or a weight is not finite; nothing is written.
        """
        state = self.state
        with self.learner.meter.pause():  # which first checks the losses that wait on the device
            if not self.learner.is_finite():
                raise self._diverged(f"step {state.step} left weights that are not finite")
            self.checkpoints.save(self.learner.weights, state)
            if state.best_step is None:
                self._export()

    def _export(self) -> None:
        first = self.learner.processes.rank_zero
        average = self.learner.average(first, CPU)
        if first:
            export(average, self.checkpoints.run)

    def _diverged(self, what: str) -> NonFiniteLoss:
        """Return the error to raise, with a hint and where the last good state is."""
        kept = newest_checkpoint(self.checkpoints.run)
        where = f"the last good state is in {kept}" if kept else "no state had been saved yet"
        return NonFiniteLoss(f"{what}: try a smaller learning rate; {where}")

    def _go_back(self) -> None:
        """Go back to a good state at half the learning rates."""
        state = self.state
        many = f"step {state.step}: {MANY} of {WINDOW} steps were left out, since their gradients exploded"
        with self.learner.meter.pause():
            self.learner.go_back(self.checkpoints)
            self.log.go_back(state)
        self.progress.say(f"{many}: gone back to step {state.step}, at {state.rates:g} times the learning rates")

    def _evaluate(self, evaluate: Evaluate) -> None:
        """Save, evaluate the EMA weights, and export them if they are the best; a resume begins with the evaluation."""
        self._save()
        state = self.state
        processes = self.learner.processes
        metrics = self._call(evaluate, processes.fill, prefix=VALIDATION)
        bits_per_dim = processes.broadcast(float(metrics["bits_per_dim"]))
        state.evaluated_step = state.step
        best = state.best_bits_per_dim
        if isfinite(bits_per_dim) and (best is None or bits_per_dim < best):
            state.best_step = state.step
            state.best_bits_per_dim = bits_per_dim
            self._export()
        self.checkpoints.save(self.learner.weights, state)

    def _sample(self, sample: Sample) -> None:
        """Sample with the EMA weights, in the first process."""
        self._call(sample, here=self.learner.processes.rank_zero)

    def _call(self, call: Evaluate | Sample, *given: Fill, prefix: str = "", here: bool = True) -> Mapping[str, Metric]:
        """Call with the EMA weights and the step if `here`, log the metrics with a prefix and return them."""
        self.checkpoints.require_folder()
        # CUDA graphs are kept with the model that samples: with this copy, they end before the training goes on.
        average = copy(self.learner.average(keep=here))
        with self.learner.meter.pause(), torch.no_grad():
            metrics: Mapping[str, Metric] = {}
            if here:
                metrics = call(average, self.state.step, *given) or {}
            self.learner.read_time()
            if metrics:
                self.log.write(self.state.step, {prefix + name: value for name, value in metrics.items()})
            self._write_page("training")
        return metrics

    def _write_page(self, status: str) -> None:
        """Write the page of the run in the first process; a failure only warns."""
        if not self.learner.processes.rank_zero:
            return
        self.checkpoints.require_folder()
        state = self.state
        status += f", step {state.step:,} of {self.config.steps:,} after {duration(state.seconds)}"
        if state.left_out:
            status += f", {state.left_out:,} steps left out"
        try:
            write_page(self.checkpoints.run, status)
        except Exception as error:  # of any kind: what is only looked at stops no run
            warnings.warn(f"the run goes on, but its page, {PAGE}, could not be written: {error}", stacklevel=2)

    def _finish(self) -> None:
        """Save; unless the run was interrupted, evaluate and sample at the last step, and say how long that took."""
        state = self.state
        self._save()
        if state.ending == "interrupted":
            return
        began = time.monotonic()
        evaluate = self.evaluate if state.evaluated_step != state.step else None
        sample = self.sample if state.step % self.config.sample_every else None
        if evaluate:
            self._evaluate(evaluate)
        if sample:
            self._sample(sample)
        if evaluate or sample:
            self.progress.say(f"the last evaluation and samples took {duration(time.monotonic() - began)}")
