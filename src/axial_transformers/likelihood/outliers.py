"""Scores that tell outliers from typical images.

Likelihood alone misleads: a model of one kind of image often gives simpler images of another kind a higher likelihood
than its own (Nalisnick et al. 2019, "Do deep generative models know what they don't know?"). Subtracting the size of
the image in a general compressor corrects for that (Serrà et al. 2020, "Input complexity and out-of-distribution
detection with likelihood-based generative models", equation 3).
"""

import io
import zlib

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image


def complexity(values: UInt8[np.ndarray, "n *a c"]) -> Float[np.ndarray, " n"]:
    """Bits/dim of each example as a PNG file, header included; as a zlib stream if it is not a gray or RGB image."""
    return np.array([8 * len(_compressed(each)) / each.size for each in values])


def corrected(bits: Float[np.ndarray, " n"], values: UInt8[np.ndarray, "n *a c"]) -> Float[np.ndarray, " n"]:
    """Score of Serrà et al. (equation 3): the model's bits/dim [N] minus the compressor's; larger for outliers."""
    return bits - complexity(values)


def auroc(typical: Float[np.ndarray, " n"], outlying: Float[np.ndarray, " m"]) -> float:
    """Area under the ROC curve: the probability that an outlier scores higher than a typical image; ties count half.

    Raises:
        ValueError: one of them is empty.
    """
    if not len(typical) or not len(outlying):
        raise ValueError("an AUROC needs scores of both kinds")
    ordered = np.sort(typical)
    below, up_to = (np.searchsorted(ordered, outlying, side=side) for side in ("left", "right"))
    return float((below + up_to).mean() / (2 * len(typical)))


def _compressed(example: UInt8[np.ndarray, "*a c"]) -> bytes:
    if example.ndim != 3 or example.shape[-1] not in (1, 3):
        return zlib.compress(example.tobytes(), level=9)
    stream = io.BytesIO()
    Image.fromarray(example if example.shape[-1] == 3 else example[..., 0]).save(stream, format="PNG", optimize=True)
    return stream.getvalue()
