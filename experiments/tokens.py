"""Codes of images by a small VQ-VAE (van den Oord et al. 2017): data for a prior on tokens.

    python experiments/tokens.py encode fashion_mnist_train.npz fashion_mnist_test.npz tokens
    python experiments/tokens.py sizes tokens/test_codes.npy
    python experiments/tokens.py decode tokens samples.npz samples.png

`encode` trains on the first file and writes codes of both, int16 [N, 7, 7] for gray images of 28x28. `sizes` prints
what they take without a prior. `decode` draws them, or samples of a prior.
"""

import lzma
import time
import zlib
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from axial_transformers.data import load
from axial_transformers.pictures import image_grid
from of_benchmarks import run_command

WEIGHTS = "vq.safetensors"


class Residual(nn.Module):
    """A convolution of 3x3 and one of 1x1, added to their input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.near, self.same = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.same(F.relu(self.near(F.relu(x))))


class VQ(nn.Module):
    """Images [B, 1, H, W] to codes [B, H/4, W/4] and back. The codebook follows the means of its cells (EMA)."""

    def __init__(self, codes: int = 512, width: int = 48, dim: int = 16) -> None:
        super().__init__()
        half = width // 2
        self.encoder = nn.Sequential(
            *(nn.Conv2d(1, half, 4, 2, 1), nn.ReLU(), nn.Conv2d(half, width, 4, 2, 1)),
            *(Residual(width), nn.Conv2d(width, dim, 1)),
        )
        self.decoder = nn.Sequential(
            *(nn.Conv2d(dim, width, 3, padding=1), Residual(width), nn.ReLU()),
            *(nn.ConvTranspose2d(width, half, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(half, 1, 4, 2, 1)),
        )
        parts = torch.randn(codes, dim), torch.zeros(codes), torch.zeros(codes, dim)
        self.codebook, self.counts, self.sums = (nn.Parameter(part, requires_grad=False) for part in parts)

    def nearest(self, latents: Tensor) -> Tensor:
        """Return the codes of latents [..., dim]."""
        return (latents @ self.codebook.T - self.codebook.square().sum(-1) / 2).argmax(-1)

    def encode(self, images: Tensor) -> Tensor:
        return self.nearest(self.encoder(images).movedim(1, -1))

    def decode(self, codes: Tensor) -> Tensor:
        return self.decoder(self.codebook[codes].movedim(-1, 1))

    @torch.no_grad()
    def follow(self, latents: Tensor, codes: Tensor, decay: float = 0.98) -> None:
        """Move the codebook to the means of its cells; a code that is hardly used becomes one of the latents."""
        chosen = F.one_hot(codes, len(self.codebook)).to(latents.dtype)
        self.counts.lerp_(chosen.sum(0), 1 - decay)
        self.sums.lerp_(chosen.T @ latents, 1 - decay)
        unused = self.counts < 0.2
        fresh = latents[torch.randint(len(latents), (int(unused.sum()),))]
        self.counts[unused], self.sums[unused] = 1.0, fresh
        self.codebook.copy_(self.sums / self.counts[:, None])

    def loss(self, images: Tensor) -> Tensor:
        """Return the mean squared error of images and of latents, and let the codebook follow."""
        latents = self.encoder(images)
        codes = self.nearest(flat := latents.movedim(1, -1))
        quantised = self.codebook[codes].movedim(-1, 1)
        drawn = self.decoder(latents + (quantised - latents).detach())  # gradients pass straight through
        self.follow(flat.detach().flatten(0, -2), codes.flatten())
        return F.mse_loss(drawn, images) + 0.25 * F.mse_loss(latents, quantised)


def read(source: Path) -> Tensor:
    """Return gray images [N, 1, H, W] within 0..1."""
    return torch.from_numpy(load(source, split="all").values).movedim(-1, 1).float() / 255


def train(model: VQ, images: Tensor, steps: int, batch: int) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, steps)
    for step in range(1, steps + 1):
        loss = model.loss(images[torch.randint(len(images), (batch,))])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 200 == 0 or step == steps:
            print(f"step {step}: loss {loss.item():.5f}, {time.process_time():.0f} s of CPU time", flush=True)


@torch.no_grad()
def codes_of(model: VQ, images: Tensor) -> tuple[Tensor, float]:
    """Return codes [N, H/4, W/4], and the root of the mean squared error of what is drawn from them."""
    codes = torch.cat([model.encode(some) for some in images.split(500)])
    errors = [(model.decode(some) - x).square().mean((1, 2, 3)) for some, x in zip(codes.split(500), images.split(500))]
    return codes, 255 * float(torch.cat(errors).mean().sqrt())


def encode(images: Path, test: Path, out: Path, *, codes: int = 512, steps: int = 2000, batch: int = 64) -> None:
    """Train on images, and write the model and the codes of both files into a new folder."""
    torch.manual_seed(0)
    model, files = VQ(codes), {"codes": read(images), "test_codes": read(test)}
    out.mkdir(parents=True)
    train(model, files["codes"], steps, batch)
    save_file(model.state_dict(), out / WEIGHTS)
    for name, pixels in files.items():
        found, error = codes_of(model, pixels)
        np.save(out / f"{name}.npy", found.numpy().astype(np.int16))
        print(f"{name}: {list(found.shape)}, {len(found.unique())} of {codes} codes, error {error:.1f} of 255")


def sizes(codes: Path) -> None:
    """Print what codes take without a model: bits per code, and bytes."""
    values = np.load(codes).astype("<i2")
    shares = np.unique(values, return_counts=True)[1] / values.size
    entropy = -(shares * np.log2(shares)).sum()
    zipped = zlib.compress(values.tobytes(), 9), lzma.compress(values.tobytes(), preset=9 | lzma.PRESET_EXTREME)
    for name, size in zip(("entropy of single codes", "zlib", "xz"), (values.size * entropy / 8, *map(len, zipped))):
        print(f"{name:24} {8 * size / values.size:.3f} bits a code, {size:,.0f} bytes")


@torch.no_grad()
def decode(folder: Path, codes: Path, image: Path, *, count: int = 32, columns: int = 8) -> None:
    """Draw the first codes of a file with the model of a folder."""
    state = load_file(folder / WEIGHTS)
    model = VQ(len(state["codebook"]))
    model.load_state_dict(state)
    values = load(codes, split="all").values[:count, ..., 0]
    pixels = 255 * model.decode(torch.from_numpy(values.astype(np.int64))).clamp(0, 1)
    image_grid(pixels.round().byte().movedim(1, -1).numpy(), columns, scale=2).save(image)
    print(image)


if __name__ == "__main__":
    run_command(encode, sizes, decode)
