"""The training loop: the life of a run, from its settings to its result.

      fit
        |  Processes     connect the processes
        |  check_fit     refuse a model, examples and settings that do not fit
        |  opened_run    the first process takes the folder; a second run in it is refused
        |  start_from    first weights from another model, unless there is a checkpoint
        |  RunRecord     what train.json holds
        |  prepared      send weights to all processes, restore the newest checkpoint, start the clock
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
from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from axial_transformers.data import Examples
from axial_transformers.data.config import DataConfig
from axial_transformers.likelihood.bits import random_slice_loss
from axial_transformers.machine import machine_facts
from axial_transformers.models import AxialTransformer, AxialTransformerConfig, start
from axial_transformers.models.baselines.by_name import read_model
from axial_transformers.progress import Display
from axial_transformers.storage import require_extra
from axial_transformers.training.batches import check_fit, some_examples
from axial_transformers.training.callbacks import Callbacks, Evaluate, Sample
from axial_transformers.training.checkpoints import Checkpoints, newest_checkpoint
from axial_transformers.training.config import RunConfig, TrainConfig
from axial_transformers.training.metrics import MetricsLog, NonFiniteLoss
from axial_transformers.training.parallelism import Loss
from axial_transformers.training.processes import Interrupts, Processes
from axial_transformers.training.run_folder import Facts, RunRecord, opened_run, read_run
from axial_transformers.training.run_page import PAGE
from axial_transformers.training.run_state import Ending, RunState, goes_back
from axial_transformers.training.step import STEPS_BETWEEN_WAITS, Learner, alone, borrowed, prepared, step
from axial_transformers.wording import duration

FITTED_NUMBERS = 1 << 19
"""Numbers of examples to which the prediction of ordinal values is fitted."""


def train(  # noqa: PLR0913
    model: AxialTransformer,
    examples: Examples,
    config: TrainConfig,
    folder: str | Path,
    *,
    loss: Loss = random_slice_loss,
    evaluate: Evaluate | None = None,
    sample: Sample | None = None,
    resume: bool = False,
    start_from: str | Path | None = None,
    source: str | None = None,
    data: DataConfig | None = None,
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
        config: settings; a resume may change all but the seed, the batch size and the optimizer.
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
        progress: such as `progress.Bar`; None shows nothing.

    Raises:
        ValueError: model, data and settings do not fit each other or the run to resume.
        NonFiniteLoss: a ValueError; training diverged. The newest checkpoint has the last good state.
        FileExistsError: the folder is not empty.
        FolderInUse: an OSError; another process trains in the folder.
        OSError: something could not be read or written there, or the folder was moved or removed meanwhile.
        ConnectionError: an OSError; another process of the run has ended.
    """
    begun = read_run(folder) if resume else None
    training = config.resolve_auto(begun.run.training if begun else None)
    run = begun.run if begun else RunConfig(model=model.config, start_from=str(start_from) if start_from else None)
    run = replace(
        run,
        source=source or run.source,
        out=Path(folder),
        data=data or run.data,
        model=model.config,
        training=training,
    )
    facts = replace(begun.facts, fingerprint=examples.fingerprint, resumed_by=None) if begun else None
    return fit(
        model, examples, run, begun=begun, facts=facts, loss=loss, evaluate=evaluate, sample=sample, progress=progress
    )


def fit(  # noqa: PLR0913
    model: AxialTransformer,
    examples: Examples,
    run: RunConfig,
    *,
    begun: RunRecord | None = None,
    facts: Facts | None = None,
    loss: Loss = random_slice_loss,
    evaluate: Evaluate | None = None,
    sample: Sample | None = None,
    progress: Display | None = None,
) -> RunState:
    """Train a model as `run` says: what `train` does, for settings in which nothing is open.

    Args:
        begun: the record of the run to resume, from `read_run`; None: a new run.
        facts: what train.json records of the data; None: what the examples say.
    """
    config, progress = run.training, progress or Display()
    device = config.torch_device()
    with Processes(device) as processes, alone(config, device), borrowed(model):
        check_fit(model, examples, config, processes)
        if config.tensorboard:
            require_extra("tensorboard", "tensorboard", "training.tensorboard=True")
        if config.wandb and find_spec("wandb") is None:
            raise ValueError(f"training.wandb={config.wandb} needs the package wandb: pip install wandb")
        with opened_run(run.out, begun is not None) if processes.rank_zero else nullcontext():
            if (own := labelled(model.config, config, begun)) != model.config:
                model.config = own
            if run.start_from and newest_checkpoint(run.out) is None:
                for line in _start(model, run.start_from, facts.class_names if facts else examples.class_names):
                    progress.say(line)
            elif newest_checkpoint(run.out) is None:
                model.fit_values(some_examples(examples, FITTED_NUMBERS))
            facts = replace(facts or Facts.of(examples, model), processes=processes.count, machine=machine_facts())
            record = RunRecord(run=replace(run, model=model.config), facts=replace(facts, model_name=model.name))
            processes.barrier()  # the folder is ready
            checkpoints = Checkpoints(run.out, processes)
            learner = prepared(model, examples, config, processes, checkpoints, loss, record.identity)
            if (made := learner.state.step) > config.steps:
                raise ValueError(f"{run.out} has made {made} steps already, more than training.steps={config.steps}")
            if processes.rank_zero:
                record.write(run.out)
            return _fit(learner, checkpoints, evaluate, sample, progress)


def _start(model: AxialTransformer, trained: str, classes: Sequence[str] | None) -> list[str]:
    """Copy the weights of a trained model; return what could not be copied."""
    record = read_run(trained)
    before = record.facts.class_names if record else None
    return start.start_from(model, read_model(trained), trained, classes, before)


def labelled(
    model: AxialTransformerConfig, training: TrainConfig, begun: RunRecord | None = None
) -> AxialTransformerConfig:
    """Return the configuration that says whether a run, resumed or new, has hidden no label."""
    hidden = training.label_dropout > 0 or (begun is not None and not begun.run.model.needs_label)
    return replace(model, needs_label=model.num_classes is not None and not hidden)


def _fit(
    learner: Learner,
    checkpoints: Checkpoints,
    evaluate: Evaluate | None,
    sample: Sample | None,
    progress: Display,
) -> RunState:
    config, state, meter = learner.config, learner.state, learner.meter
    interrupts, folder = Interrupts(), checkpoints.run if learner.processes.rank_zero else None
    log = MetricsLog(folder, state, config)
    between = Callbacks(learner, checkpoints, log)
    with interrupts, closing(learner), log, progress:
        _begin(between, progress)
        while (ending := _ending(learner, interrupts)) is None:
            if evaluate and _evaluation_due(learner):
                between.evaluate(evaluate)
                continue
            try:
                step(learner)
            except NonFiniteLoss as error:
                raise between.diverged(str(error)) from None
            left = learner.time.left(config.steps - state.step, state.seconds / state.step)
            progress.update(state.step, meter.shown(left))
            if state.step % config.log_every == 0:
                between.write_line()
            if state.step % config.save_every == 0:
                between.save()
            if sample and state.step % config.sample_every == 0:
                between.sample(sample)
            if goes_back(state):
                progress.say(between.go_back())
        state.ending = ending
        _finish(between, evaluate, sample, progress)
        between.write_page(ending)
    return state


def _begin(between: Callbacks, progress: Display) -> None:
    """Write the first page, and show where the run begins."""
    learner, state = between.learner, between.learner.state
    state.ending = None
    with learner.meter.paused():
        between.write_page("training")
    progress.say(f"curves and samples: {between.folder / PAGE}")
    progress.start(learner.config.steps, state.step)
    if state.step:
        progress.say(f"resumed at step {state.step}")


def _finish(between: Callbacks, evaluate: Evaluate | None, sample: Sample | None, progress: Display) -> None:
    """Save; unless the run was interrupted, evaluate and sample at the last step, and say how long that took."""
    config, state = between.learner.config, between.learner.state
    between.save()
    if state.ending == "interrupted":
        return
    began = time.monotonic()
    due = evaluate if state.evaluated_step != state.step else None
    last = sample if state.step % config.sample_every else None
    if due:
        between.evaluate(due)
    if last:
        between.sample(last)
    if due or last:
        progress.say(f"the last evaluation and samples took {duration(time.monotonic() - began)}")


def _evaluation_due(learner: Learner) -> bool:
    state = learner.state
    due = state.step > 0 and state.step % learner.config.evaluate_every == 0
    return due and state.step != state.evaluated_step


def _ending(learner: Learner, interrupts: Interrupts) -> Ending | None:
    """Return why the run ends now, or None. Several processes agree only every few steps."""
    state, processes = learner.state, learner.processes
    if state.step >= learner.config.steps:
        return "finished"
    if processes.count > 1 and state.step % STEPS_BETWEEN_WAITS:
        return None
    if state.step and learner.time.share(state.seconds) >= 1:
        return "time limit"
    return "interrupted" if processes.any(interrupts.asked) else None
