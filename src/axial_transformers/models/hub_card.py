"""Model card for the Hugging Face hub."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from axial_transformers.data.kinds import KINDS, kind_of
from axial_transformers.models.config import AxialTransformerConfig
from axial_transformers.storage import import_extra

PICTURES = "unconditional-image-generation"

_TEXT = """\
---
{head}
---
# {title}

A density model with exact likelihoods of {examples}, for the Python package `axial-transformers`: it scores, samples,
completes and losslessly compresses them.

| | |
|---|---|
{rows}

```python
import axial_transformers as axial
from axial_transformers.models import AxialTransformer

model = AxialTransformer.from_pretrained("{repository}")
{use}
```

```sh
{commands}
```
{settings}"""


@dataclass(frozen=True, kw_only=True)
class Result:
    """Measured bits/dim."""

    data: str
    """Name of the data set."""
    split: str
    bits_per_dim: float


def model_card(
    model: nn.Module,
    config: AxialTransformerConfig,
    repository: str,
    *,
    licence: str | None = None,
    rows: Mapping[str, str] | None = None,
    result: Result | None = None,
    settings: Mapping[str, Any] | None = None,
) -> str:
    """Return the text of README.md; `licence` is of the hub's list, such as apache-2.0."""
    import_extra("hub", "huggingface_hub", "a model card")
    from huggingface_hub import ModelCardData

    parameters = sum(parameter.numel() for parameter in model.parameters())
    title = repository.rpartition("/")[2]
    example = kind_of(config)
    pictures = example == "image" and config.channels in (1, 3)
    results = [_measured(result, PICTURES if pictures else "other")] if result else []
    head = ModelCardData(
        license=licence,
        library_name="axial-transformers",
        pipeline_tag=PICTURES if pictures else None,
        tags=["axial-transformers", "density-estimation", "lossless-compression"],
        model_name=title,
        eval_results=results or None,
    )
    table = {
        "model": f"`{type(model).__name__}`, {parameters:,} parameters",
        **config.describe(),
        "licence": licence or "not stated",
        **(rows or {}),
    }
    shape = ", ".join(map(str, (*config.shape, config.channels)))
    labels = ""
    of_class = ""
    option = ""
    if config.needs_label:
        labels = ", label=y"
        of_class = ", label=0"
        option = "--label 0 "
    use = [f"bits = axial.bits_per_dim(model, x{labels})    # x: integers [N, {shape}]"]
    commands = ["evaluate {} DATA"]
    if not config.known_channels:
        use.append(f"samples = axial.sample(model, count=4{of_class})    # [4, {shape}]")
        commands.append(f"sample {{}} {option}--out samples.png")
    return _TEXT.format(
        head=head.to_yaml(),
        title=title,
        examples=KINDS[example].partition(":")[0],
        rows="\n".join(f"| {row} | {_cell(text)} |" for row, text in table.items()),
        repository=repository,
        use="\n".join(use),
        commands="\n".join(f"axial {command}".format(repository) for command in commands),
        settings="" if settings is None else f"\n## Training\n\n```json\n{json.dumps(settings, indent=2)}\n```\n",
    )


def _measured(result: Result, task: str) -> Any:
    from huggingface_hub import EvalResult

    return EvalResult(
        task_type=task,
        task_name="density estimation",
        dataset_type=re.sub(r"[^\w.-]+", "-", result.data, flags=re.ASCII),
        dataset_name=result.data,
        dataset_split=result.split,
        metric_type="bits_per_dim",
        metric_name="bits/dim",
        metric_value=round(result.bits_per_dim, 4),
    )


def _cell(text: str) -> str:
    """Keep a text within its cell of a table."""
    return "".join(c if c.isprintable() else "?" for c in text).replace("|", "\\|")
