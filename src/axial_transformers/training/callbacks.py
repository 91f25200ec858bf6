"""What a run does between its steps: save, evaluate, sample, write its page."""

import warnings
from collections.abc import Callable, Mapping
from copy import copy
from datetime import timedelta
from math import isfinite

import torch

from axial_transformers.likelihood.evaluation import Fill
from axial_transformers.models import AxialTransformer
from axial_transformers.training.checkpoints import Checkpoints, newest_checkpoint
from axial_transformers.training.metrics import VALIDATION, Metric, MetricsLog, NonFiniteLoss
from axial_transformers.training.run_folder import export
from axial_transformers.training.run_page import PAGE, write_page
from axial_transformers.training.run_state import MANY, WINDOW
from axial_transformers.training.step import Learner

Evaluate = Callable[[AxialTransformer, int, Fill], Mapping[str, Metric]]
"""Takes the EMA model, the step and `Processes.fill`, which divides work among processes; all processes call it."""
Sample = Callable[[AxialTransformer, int], Mapping[str, Metric] | None]
"""Takes the EMA model and the step; may return metrics. Only the first process calls it."""


class Callbacks:
    """Saves, evaluates and samples; the first process also writes the log and the page.

    All processes of a run make the same calls at the same steps, since every method is a collective operation.
    """

    def __init__(self, learner: Learner, checkpoints: Checkpoints, log: MetricsLog) -> None:
        self.learner, self.checkpoints, self.folder, self.log = learner, checkpoints, checkpoints.run, log

    def write_line(self) -> None:
        """Write the metrics of the steps since the last line."""
        self.checkpoints.require_folder()
        self.log.write(self.learner.state.step, self.learner.line())

    def save(self) -> None:
        """Write a checkpoint; export its EMA weights if no evaluation has chosen the best.

        Raises:
            NonFiniteLoss: a loss or a weight is not finite; nothing is written.
        """
        learner, state = self.learner, self.learner.state
        with learner.meter.paused():  # which first checks the losses that wait on the device
            if not learner.is_finite():
                raise self.diverged(f"step {state.step} left weights that are not finite")
            self.checkpoints.save(learner.weights, state)
            if state.best_step is None:
                self._export()

    def go_back(self) -> str:
        """Go back to a good state at half the learning rates, and return what is said about it."""
        learner, state = self.learner, self.learner.state
        many = f"step {state.step}: {MANY} of {WINDOW} steps were left out, since their gradients exploded"
        with learner.meter.paused():
            learner.go_back(self.checkpoints)
            self.log.go_back(state)
        return f"{many}: gone back to step {state.step}, at {state.rates:g} times the learning rates"

    def diverged(self, what: str) -> NonFiniteLoss:
        """Return the error to raise, with a hint and where the last good state is."""
        kept = newest_checkpoint(self.folder)
        state = f"the last good state is in {kept}" if kept else "no state had been saved yet"
        return NonFiniteLoss(f"{what}: try a smaller learning rate; {state}")

    def evaluate(self, evaluate: Evaluate) -> None:
        """Save, evaluate the EMA weights, and export them if they are the best; a resume begins with the evaluation."""
        self.save()
        processes, state = self.learner.processes, self.learner.state
        metrics = self._call(lambda average: evaluate(average, state.step, processes.fill), VALIDATION, True)
        bits_per_dim = processes.broadcast(float(metrics["bits_per_dim"]))
        state.evaluated_step = state.step
        if isfinite(bits_per_dim) and (state.best_bits_per_dim is None or bits_per_dim < state.best_bits_per_dim):
            state.best_step, state.best_bits_per_dim = state.step, bits_per_dim
            self._export()
        self.checkpoints.save(self.learner.weights, state)

    def sample(self, sample: Sample) -> None:
        """Sample with the EMA weights, in the first process."""
        self._call(lambda average: sample(average, self.learner.state.step), "", self.learner.processes.rank_zero)

    def _call(
        self, call: Callable[[AxialTransformer], Mapping[str, Metric] | None], prefix: str, here: bool
    ) -> Mapping[str, Metric]:
        """Call with the EMA weights if `here`, log the metrics with a prefix and return them."""
        self.checkpoints.require_folder()
        learner, step = self.learner, self.learner.state.step
        # CUDA graphs are kept with the model that samples: with this copy, they end before the training goes on.
        average = copy(learner.average(keep=here))
        with learner.meter.paused(), torch.no_grad():
            metrics = (call(average) if here else None) or {}
            learner.read_time()
            if metrics:
                self.log.write(step, {prefix + name: value for name, value in metrics.items()})
            self.write_page("training")
        return metrics

    def write_page(self, status: str) -> None:
        """Write the page of the run in the first process; a failure only warns."""
        if not self.learner.processes.rank_zero:
            return
        self.checkpoints.require_folder()
        state, steps = self.learner.state, self.learner.config.steps
        left_out = f", {state.left_out:,} steps left out" if state.left_out else ""
        time = timedelta(seconds=round(state.seconds))
        try:
            write_page(self.folder, f"{status}, step {state.step:,} of {steps:,} after {time}{left_out}")
        except Exception as error:  # of any kind: what is only looked at stops no run
            warnings.warn(f"the run goes on, but its page, {PAGE}, could not be written: {error}", stacklevel=2)

    def _export(self) -> None:
        first = self.learner.processes.rank_zero
        average = self.learner.average(first, torch.device("cpu"))
        if first:
            export(average, self.folder)
