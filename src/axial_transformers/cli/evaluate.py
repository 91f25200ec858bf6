"""axial evaluate: exact bits/dim of a data set."""

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from axial_transformers.cli.console import print_rows, rank_zero_output
from axial_transformers.cli.options import OnData, Precision, processes_on
from axial_transformers.progress import bar
from axial_transformers.wording import counted, plural

if TYPE_CHECKING:  # options are read without torch
    from axial_transformers.likelihood.evaluation import Evaluation


@dataclass(frozen=True)
class Evaluate(OnData):
    """Exact bits/dim over every example of a data set.

    For example:

        axial evaluate runs/fashion_mnist fashion_mnist_test.npz --json
        axial evaluate runs/photos other_photos/ --data.cut crop --data.size 32
    """

    _: KW_ONLY
    labels: bool = False
    """Condition a class-conditional model on the labels. One that was trained with labels only always gets them."""
    given_frames: Annotated[int, Parameter(validator=Number(gte=0))] = 0
    """First frames of a clip, or rows of an image, whose bits do not count."""
    precision: Precision = "float32"
    json: bool = False
    """Print one JSON object."""


def main(options: Evaluate) -> None:
    """Run the command."""
    import torch

    from axial_transformers.likelihood.evaluation import evaluate
    from axial_transformers.storage.typed_json import line_of

    with processes_on(options.device, options.precision) as processes:
        with rank_zero_output():
            trained = options.opened(processes.device)
            whole, described = trained.examples(options.source, options.split)
            examples = whole.spread(options.limit)
            labels = trained.labels(examples, described, options.labels)
            config = trained.model.config
            known_frames = config.known_channels // config.channels if config.layout == "frames" else 0
            given_frames = max(options.given_frames, known_frames)
        result = evaluate(
            trained.model,
            examples.values,
            labels,
            batch_size=options.batch_size,
            given_frames=given_frames,
            progress=bar(f"bits/dim of {counted(len(examples), trained.kind)}: batches"),
            fill=processes.fill,
        )
        in_bfloat16 = torch.is_autocast_enabled(processes.device.type)
    if not processes.rank_zero:
        return
    conditions = {
        "data": described,
        "fingerprint": examples.fingerprint,
        "weights": trained.weights,
        "labels": labels is not None,
        "precision": "bfloat16" if in_bfloat16 else "float32",
    }
    if given_frames:
        conditions["given_frames"] = given_frames
    if len(examples) < len(whole):
        conditions["of_images"] = len(whole)
    if options.json:
        print(line_of({**result.to_json(), **conditions}))
    else:
        print_result(result, plural(trained.kind), conditions)


def print_result(result: "Evaluation", kind: str, conditions: dict[str, Any]) -> None:
    """Print bits/dim, its standard error over examples of this kind, and the conditions, as rows."""
    bits = f"{result.bits_per_dim:.4f}"
    if result.images > 1:
        bits += f" ± {result.standard_error:.4f} (standard error over {kind})"
    number = f"{result.images:,}"
    if whole := conditions.pop("of_images", None):
        number += f" of {whole:,}, evenly spaced"
    labels = "given to the model" if conditions.pop("labels") else "not used"
    rows = {"bits/dim": bits, kind: number, "labels": labels}
    for name, value in conditions.items():
        rows[name.replace("_", " ")] = str(value)
    print_rows(rows)
