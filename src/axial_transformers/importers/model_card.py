"""Model card of an imported checkpoint: origin and licence of its weights."""

from axial_transformers.models import AxialTransformerConfig

_CARD = """\
---
library_name: axial-transformers
license: other
license_name: see-the-publisher
license_link: https://github.com/google-research/google-research/tree/master/axial
tags:
- axial-transformer
---
# An Axial Transformer, imported from a TensorFlow checkpoint

| | |
|---|---|
| Imported from | `{file}`, SHA-256 `{sha256}` |
| Weights | {weights} |
| Training steps | {steps} |
| Data | shape {shape}, channels {channels}, values {values} |
| Heads | {heads} (a checkpoint does not record them: set when importing) |

## Origin

The checkpoint has the variables of the authors' implementation of *Axial Attention in Multidimensional Transformers*
(Jonathan Ho, Nal Kalchbrenner, Dirk Weissenborn, Tim Salimans, 2019, https://arxiv.org/abs/1912.12180). They publish
code at https://github.com/google-research/google-research/tree/master/axial and weights, trained on downsampled
ImageNet, at `gs://axial-transformers/imagenet32` and `gs://axial-transformers/imagenet64`. The import changed the
arrangement of the numbers, not the numbers. Whether this checkpoint is one of those two, only its origin can tell.

## Licence

The authors' code is under the Apache License 2.0. The licence of the weights is what their publisher states, and the
images that they were trained on have terms of use of their own.
"""


def model_card(config: AxialTransformerConfig, *, file: str, sha256: str, raw: bool, steps: int | None) -> str:
    """Text of README.md in the model folder, in the format of the Hugging Face hub.

    Args:
        file: name of the checkpoint's index.
        sha256: digest of that file, which holds the checksums of all tensors.
        raw: whether the weights are those of the last step, not their exponential moving average.
        steps: the checkpoint's global_step, where it holds one.
    """
    return _CARD.format(
        file=file,
        sha256=sha256,
        weights="raw" if raw else "exponential moving average",
        steps="not recorded" if steps is None else f"{steps:,}",
        shape=list(config.shape),
        channels=config.channels,
        values=config.num_values,
        heads=config.heads,
    )
