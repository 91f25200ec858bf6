"""The training loop: the life of a run, from `train` to its result.

      train
        |  Processes     connect the processes
        |  check_fit     refuse a model, examples and settings that do not fit
        |  opened_run    the first process takes the folder; a second run in it is refused
        |  start_from    first weights from another model, unless there is a checkpoint
        |  Run           resolve `auto`, send weights to all, restore the newest checkpoint, write train.json
        v
    +-> ending? -- finished, time limit, interrupted --> save --> last evaluation --> last samples --> TrainResult
    |   | none yet                                                (neither after an interrupt)
    |   v
    |   evaluation due? -- yes --> save, evaluate the EMA weights, export the best, save --+
    |   | no                                                                               |
    |   v                                                                                  |
    |   update: batch, loss, gradients, clip, step, EMA weights                            |
    |   |                                                                                  |
    |   v                                                                                  |
    |   at their intervals: log a line, save a checkpoint, sample                          |
    |   |                                                                                  |
    +---+----------------------------------------------------------------------------------+

A resume enters at the top, and continues with the step of its checkpoint. If an interrupt ended an evaluation, a resume
begins with it.
"""

from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path

from axial_transformers.data.workers import deaths_of_workers
from axial_transformers.likelihood.bits import random_slice_loss
from axial_transformers.models import AxialTransformer, start
from axial_transformers.models.baselines.by_name import read_model
from axial_transformers.ops.linear import stated_library
from axial_transformers.progress import Display
from axial_transformers.storage import require_extra
from axial_transformers.training.batches import TrainingExamples, check_fit
from axial_transformers.training.checkpoints import newest_checkpoint
from axial_transformers.training.config import TrainConfig
from axial_transformers.training.metrics import progress_metrics
from axial_transformers.training.parallelism import Loss
from axial_transformers.training.processes import Processes
from axial_transformers.training.run import Callback, Collective, Ending, Run
from axial_transformers.training.run_folder import Origin, opened_run, read_run
from axial_transformers.training.step_time import FIRST_STEPS


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """The end of a run."""

    ending: Ending
    """All steps made, time limit reached, or SIGINT or SIGTERM, after which `resume` continues."""
    step: int
    seconds: float
    """Wall-clock time, over all resumes."""
    best_step: int | None
    """Step of the exported, best EMA weights; None without an evaluation."""
    best_bits_per_dim: float | None


def train(  # noqa: PLR0913
    model: AxialTransformer,
    examples: TrainingExamples,
    config: TrainConfig,
    folder: str | Path,
    *,
    loss: Loss = random_slice_loss,
    evaluate: Callback | Collective | None = None,
    sample: Callback | None = None,
    resume: bool = False,
    start_from: str | Path | None = None,
    about: Origin | None = None,
    progress: Display | None = None,
) -> TrainResult:
    """Train `model` in place; leave in `folder` what `from_pretrained` reads and what a resume needs.

    The folder gets config.json and model.safetensors: the EMA weights (averaged) of the best evaluation, or the newest.
    Beside them are train.json, metrics.jsonl, checkpoints/ and index.html, the page of the run. A resumed run continues
    bitwise (float32, same machine; on CUDA only if `deterministic`).

    Args:
        model: an AxialTransformer, or a subclass.
        examples: the training set.
        config: settings; a resume may change all but the seed, the batch size and the optimizer.
        folder: new or empty, unless `resume`.
        loss: `loss(model, x [B, *A, C], label=[B] or None, channel=[B])`, the mean in nats/dim. With distribution
            augmentation it also gets cond=[B, *A, D].
        evaluate: `evaluate(ema_model, step)` returns metrics; "bits_per_dim" decides the best. Only a `Collective` is
            called in all processes.
        sample: `sample(ema_model, step)`, called at intervals and at the end. It may return metrics, and images uint8
            [H, W] or [H, W, 3] for TensorBoard.
        resume: continue from the newest intact checkpoint, if there is any.
        start_from: a model for the first weights, as `from_pretrained` names it. Shape and classes may differ
            (`models.start`).
        about: the recipe and the source of the data, for later commands.
        progress: such as `progress.Bar`; None shows nothing.

    Raises:
        ValueError: model, data and settings do not fit each other or the run to resume; or a step takes more than a
            tenth of the time limit.
        NonFiniteLoss: a ValueError; training diverged. The newest checkpoint has the last good state.
        FileExistsError: the folder is not empty.
        FolderInUse: an OSError; another process trains in the folder.
        OSError: something could not be read or written there.
        ConnectionError: an OSError; another process of the run has ended.
    """
    with Processes(config.torch_device()) as processes:
        check_fit(model, examples, config, processes)
        if config.tensorboard:
            require_extra("tensorboard", "tensorboard", "tensorboard=True")
        progress, uint16 = progress or Display(), about is not None and about.uint16
        with opened_run(Path(folder), resume) if processes.rank_zero else nullcontext():
            before = read_run(Path(folder)) if resume else None
            origin = before.started_from if before else str(start_from) if start_from else None
            if origin and newest_checkpoint(Path(folder)) is None:
                for line in start.start_from(model, read_model(origin), origin):
                    progress.say(line)
            run = Run(model, examples, config, Path(folder), processes, loss=loss, about=about, started_from=origin)
            with run.meter.paused():
                page = run.page.begin(run.status("training"), examples, uint16)
            if page:
                progress.say(f"curves and samples: {page}")
            return _train(run, evaluate, sample, progress, uint16)


def _train(
    run: Run, evaluate: Callback | Collective | None, sample: Callback | None, progress: Display, uint16: bool
) -> TrainResult:
    config, counters = run.config, run.state.counters
    begun = counters.step
    with stated_library(run.linear), deaths_of_workers(), run.interrupts, closing(run), run.log, run.page, progress:
        progress.start(config.steps, counters.step)
        if counters.step:
            progress.say(f"resumed at step {counters.step}")
        while (ending := run.ending()) is None:
            if evaluate and run.evaluation_due():
                run.evaluate(evaluate)
                continue
            run.update()
            progress.update(counters.step, progress_metrics(config, counters, run.meter, uint16))
            if counters.step == begun + FIRST_STEPS:
                run.measure_evaluation(evaluate)
                progress.say(run.meter.durations.describe_left(config, counters))
            if counters.step % config.log_every == 0:
                run.log.write(counters.step, run.metrics())
            if counters.step % config.save_every == 0:
                run.save()
            if sample and counters.step % config.sample_every == 0:
                run.call(sample)
        run.save()
        if evaluate and ending != "interrupted" and counters.evaluated_step != counters.step:
            run.evaluate(evaluate)
            ending = "interrupted" if run.cut_short else ending
        if sample and ending != "interrupted" and counters.step % config.sample_every:
            run.call(sample)
        run.page.ending = run.status(ending)
    return TrainResult(
        ending=ending,
        step=counters.step,
        seconds=counters.seconds,
        best_step=counters.best_step,
        best_bits_per_dim=counters.best_bits_per_dim,
    )
