"""Settings of training."""

import os
import warnings
from dataclasses import dataclass, replace
from reprlib import repr as brief
from typing import TYPE_CHECKING, ClassVar, Literal, get_args, get_origin, get_type_hints

from axial_transformers.messages import Message

if TYPE_CHECKING:  # settings are read and checked without torch
    import torch

MINIMA = dict.fromkeys(
    ("steps", "batch_size", "accumulate", "log_every", "evaluate_every", "sample_every", "save_every"), 1
) | {"workers": 0, "warmup_steps": 0, "longest_warmup": 0, "minutes": 0}

MAX_NUMBER = 10**9
MAX_WORKERS = 256


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Settings of a training run, by default the published ones (Ho et al. 2019, section 4); see `as_released`."""

    steps: int = 200_000
    """Updates of the weights. The schedule ends here, or with `minutes` if that is earlier."""
    batch_size: int = 64
    """Examples in one update, over all processes and accumulated parts."""
    accumulate: int = 1
    """Parts of a batch whose gradients are summed; saves memory. Must divide batch_size."""
    optimizer: Literal["adam", "muon"] = "adam"
    """adam, as in the paper; or muon for the matrices of the blocks, with Adam for the rest."""
    learning_rate: float = 2e-4
    """Adam's step size after the warm-up."""
    head_learning_rate: float | None = None
    """Adam's step size for the head's last layer. None: learning_rate."""
    muon_learning_rate: float = 0.02
    """Muon's step size, about the spectral norm of a step."""
    muon_weight_decay: float = 0.0
    """A step multiplies Muon's matrices by 1 - muon_learning_rate * this."""
    warmup_steps: int | None = None
    """Updates in which the learning rate rises. None: longest_warmup, at most an eighth of the run."""
    longest_warmup: int = 5_000
    """Longest warm-up, where warmup_steps is not set."""
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    """Learning rate after the warm-up: constant, or falling to zero along a half cosine or a line."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Adam's decay rates of the first and the second moment."""
    clip_norm: float = 1.0
    """Largest global norm of the gradients of the loss in nats/dim."""
    ema_decay: float = 0.99995
    """Decay of the EMA weights (averaged), which are evaluated and exported. Early steps use at most (1 + step) / (10 +
    step)."""
    as_released: bool = False
    """Clip, warm up and average as the authors' code does: norms of the loss in bits/dim, learning rate 0 in the first
    update, ema_decay from the start."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Arithmetic of training. auto: bfloat16 where the device has instructions for its products, otherwise float32
    (TF32 on CUDA). Weights, moments, evaluations and samples are float32."""
    compile: bool | Literal["auto", "bfloat16"] = "auto"
    """Compile the blocks: a slower start, faster steps; a CPU needs a C++ compiler. auto: on CUDA only. bfloat16: also
    on a CPU with bfloat16 steps."""
    deterministic: bool = False
    """Use only deterministic, slower algorithms on CUDA, so that a resumed run continues bitwise; a CPU always does.
    Needs CUBLAS_WORKSPACE_CONFIG=:4096:8 in the environment."""
    horizontal_flip: bool = False
    """Mirror half of the examples along their last axis."""
    distribution_augmentation: float = 0.0
    """Share of the examples that are mirrored and transposed at random, with the operation as conditioning (Jun et al.
    2020)."""
    shift_augmentation: float = 0.0
    """Share of the examples that are moved cyclically by at most one position along each axis, with the move as
    conditioning."""
    label_dropout: float = 0.0
    """Probability of hiding an example's label, to train an unconditional model too."""
    seed: int = 0
    """Seed of the order of the examples and all random numbers."""
    device: str = "auto"
    """Device to train on: cuda, cuda:1, cpu, ...; auto: CUDA if there is any."""
    workers: int | None = None
    """Processes that prefetch examples. None: 2 for shards, otherwise 0."""
    log_every: int = 50
    """Steps between lines of metrics.jsonl."""
    evaluate_every: int = 1_000
    """Steps between evaluations of the EMA weights."""
    sample_every: int = 5_000
    """Steps between sample grids."""
    save_every: int = 1_000
    """Steps between checkpoints."""
    shard: bool = False
    """Shard the weights and Adam's moments over the processes (FSDP2), for large models."""
    checkpoint_blocks: bool = False
    """Recompute the activations of each block for its gradient; saves memory."""
    minutes: float | None = None
    """Minutes of wall-clock time for the steps, over all resumes. Data are read before them; the last evaluation and
    samples come after. Time can move the learning rate ahead of the steps."""
    tensorboard: bool = False
    """Also write the metrics for TensorBoard; needs the tensorboard extra."""
    wandb: str | None = None
    """Project of Weights & Biases to which the metrics and samples go too; needs the package wandb."""

    OPEN: ClassVar[dict[str, tuple[str, ...]]] = {
        "precision": ("auto",),
        "compile": ("auto", "bfloat16"),
    }

    def __post_init__(self) -> None:
        self._check_numbers()
        for name in ("learning_rate", "head_learning_rate", "muon_learning_rate", "clip_norm", "minutes"):
            if (value := getattr(self, name)) is not None and not value > 0:
                raise ValueError(Message("{" + name + "} must be above 0, not {}", value))
        for name, shares in {
            "muon_weight_decay": [self.muon_weight_decay],
            "betas": self.betas,
            "ema_decay": [self.ema_decay],
            "label_dropout": [self.label_dropout],
            "distribution_augmentation": [self.distribution_augmentation],
            "shift_augmentation": [self.shift_augmentation],
        }.items():
            if not all(0 <= share < 1 for share in shares):
                raise ValueError(Message("{" + name + "} must be at least 0 and below 1, not {}", getattr(self, name)))
        if self.batch_size % self.accumulate:
            numbers = {"accumulate": self.accumulate, "batch_size": self.batch_size}
            raise ValueError(Message("{accumulate=} does not divide {batch_size=}", **numbers))
        if not 0 <= self.seed < 2**63:
            raise ValueError(Message("{training.seed} must be at least 0 and below 2**63, not {}", self.seed))
        self._check_choices()

    def _check_numbers(self) -> None:
        for name, least in MINIMA.items():
            value, most = getattr(self, name), MAX_WORKERS if name == "workers" else MAX_NUMBER
            if value is not None and value < least:
                raise ValueError(Message("{" + name + "} must be at least {}, not {}", least, value))
            if value is not None and value > most:
                raise ValueError(Message("{" + name + "} must be at most {:,}, not {}", most, brief(value)))

    def _check_choices(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            if get_origin(hint) is Literal and (value := getattr(self, name)) not in get_args(hint):
                choices = " or ".join(map(str, get_args(hint)))
                raise ValueError(Message("{" + name + "} must be {}, not {!r}", choices, value))
        if self.compile not in (True, False, *self.OPEN["compile"]):
            raise ValueError(Message("{compile} must be True, False, auto or bfloat16, not {!r}", self.compile))
        if self.shard and self.optimizer == "muon":
            raise ValueError(
                Message("{optimizer=muon!r} needs whole matrices: take {optimizer=adam!r}, or leave out {shard}")
            )

    @property
    def saves_memory(self) -> bool:
        """True if a step divides its batch or recomputes its blocks, to need less memory.

        On a CPU, the C library then returns freed memory (`freed_memory`); else it keeps it for speed.
        """
        return self.accumulate > 1 or self.checkpoint_blocks

    def resolve_auto(self, begun: "TrainConfig | None" = None) -> "TrainConfig":
        """Return the settings without `auto`, as suits the device or the run to resume (`begun`).

        Raises:
            ValueError: this machine lacks `device`, or the environment that `deterministic` needs.
        """
        from axial_transformers.machine import multiplies_bfloat16, why_not_compiled

        if begun is not None:
            begun_with = {name: getattr(begun, name) for name in self.OPEN if getattr(self, name) in self.OPEN[name]}
            return replace(self, **begun_with).resolve_auto()
        device, precision = self.torch_device(), self.precision
        on_cuda = device.type == "cuda"
        if self.deterministic and on_cuda and "CUBLAS_WORKSPACE_CONFIG" not in os.environ:
            raise ValueError(
                Message("{deterministic=True} needs CUBLAS_WORKSPACE_CONFIG=:4096:8 in the environment: set it")
            )
        if precision == "auto":
            precision = "bfloat16" if multiplies_bfloat16(device) else "float32"
        if precision == "bfloat16":
            warn_if_slow("precision", device)
        compile = self.compile if isinstance(self.compile, bool) else on_cuda or self.compile == precision
        if compile and (reason := why_not_compiled(device)):
            warnings.warn(f"blocks are not compiled: {reason}", stacklevel=2)
            compile = False
        return replace(self, precision=precision, compile=compile)

    def torch_device(self) -> "torch.device":
        return find_device(self.device)

    def autocast(self, device: "torch.device") -> "torch.autocast":
        """Return the context of a forward pass."""
        import torch

        return torch.autocast(device.type, torch.bfloat16, enabled=self.precision == "bfloat16")


def warn_if_slow(setting: str, device: "torch.device") -> None:
    """Warn where a CPU has no instructions for products in bfloat16."""
    from axial_transformers.machine import multiplies_bfloat16

    if device.type == "cpu" and not multiplies_bfloat16(device):
        field = "{" + setting + "="
        warnings.warn(Message(field + "bfloat16} is slow on this processor: take " + field + "float32}"), stacklevel=3)


def find_device(name: str) -> "torch.device":
    """Return the device called cuda, cuda:1, cpu, ... or auto; under torchrun, that of the local rank."""
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and int(os.environ.get("WORLD_SIZE", 1)) > 1:
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    try:
        device = torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(Message("{device=!r} is not on this machine: {}", reason, device=name)) from None
    if device.type == "meta":
        raise ValueError(Message("{device=meta!r} computes nothing: name cpu, cuda, ... or auto"))
    return device
