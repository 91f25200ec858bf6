"""Studio: a page in the browser that samples, completes an example, and shows its bits.

`Studio` does the work and knows no page. `page` builds the page in Gradio, which only Studio needs.
"""

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from axial_transformers.decoding.sampling import complete, exact_layouts, require_room, sample
from axial_transformers.likelihood.bits import bits_map, bits_per_dim
from axial_transformers.pictures import Look
from axial_transformers.pictures.completions import save_completions
from axial_transformers.pictures.heat_maps import heat_map
from axial_transformers.pictures.saving import save_examples, save_picture
from axial_transformers.progress import Progress
from axial_transformers.training.trained_model import TrainedModel

LOCAL = ("127.0.0.1", "localhost")
MAX_SAMPLES = 64
MAX_MEGABYTES = 32
STALE = 3600
"""Seconds that a file is kept."""
EXACT = "exact: all known positions come first in the model's order"
APPROXIMATE = "approximate: values sampled before a known position do not depend on it"

Explain = Callable[[Exception], str | None]
"""Returns an error's message on one line; None for a bug."""


@dataclass(frozen=True)
class Studio:
    """The work of the page. Each method returns the path of an image or, for samples of clips, of a movie."""

    trained: TrainedModel
    folder: Path
    """Where images and movies are written."""

    @property
    def look(self) -> Look:
        return Look.of(self.trained.model.config, self.trained.data.axes)

    @property
    def is_clip(self) -> bool:
        return self.look.is_clip(len(self.trained.model.config.shape))

    @property
    def classes(self) -> list[str]:
        """Return the names of the model's classes, or their numbers."""
        return [*self.trained.known_classes]

    @property
    def choices(self) -> list[tuple[str, str]]:
        """Return the classes to choose from, and none unless the model needs one: what is shown, and the word."""
        classes = [(name, name) for name in self.classes]
        return classes if self.trained.model.config.needs_label else [("none", ""), *classes]

    @property
    def first_axis(self) -> str:
        """Return what the positions of the first axis are called."""
        axes = len(self.trained.model.config.shape)
        return "frames" if self.is_clip else {1: "positions", 2: "rows"}.get(axes, "slices")

    def samples(self, progress: Progress, count: int, temperature: float, seed: int | None, label: str | None) -> str:
        """Return the path of a grid of new samples.

        Args:
            progress: wraps the loop over rows.
            count, temperature, seed: as of `axial_transformers.sample`.
            label: the name or number of a class. Empty or None: no class.
        """
        model = self.trained.model
        number = self._class_number(label)
        if model.config.known_channels:
            raise ValueError("this model continues known channels: complete a file, and keep 0 of it")
        self._check(count, seed)
        values = sample(
            model,
            count,
            temperature=temperature,
            seed=seed,
            label=number,
            progress=progress,
        )
        path = self._new_path(movie=self.is_clip)
        save_examples(path, values.cpu().numpy(), self.look)
        return str(path)

    def completions(
        self,
        progress: Progress,
        file: str | None,
        keep: int,
        count: int,
        temperature: float,
        seed: int | None,
        label: str | None,
    ) -> tuple[str, str]:
        """Return whether completions of a file's first example are exact, and the path of its image.

        Args:
            keep: how many rows, frames, slices or positions at the start are known.
        """
        known = self._uploaded(file)
        model = self.trained.model
        self._check(count, seed)
        mask = torch.zeros(known.shape[1:], dtype=torch.bool, device="cpu")
        mask[:keep] = True
        mask[..., : model.config.known_channels] = True
        values = complete(
            model,
            torch.from_numpy(known),
            mask=mask,
            count=count,
            approximate=True,
            temperature=temperature,
            seed=seed,
            label=self._class_number(label),
            progress=progress,
        )
        path = self._new_path(movie=self.is_clip)
        save_completions(path, known, mask.numpy(), values.cpu().numpy(), self.look)
        return EXACT if model.config.layout in exact_layouts(model, mask) else APPROXIMATE, str(path)

    def bits(self, progress: Progress, file: str | None, label: str | None) -> tuple[str, str]:
        """Return the bits/dim of a file's first example, and the path of its heat map."""
        values = self._uploaded(file)
        number = self._class_number(label)
        model = self.trained.model
        x = torch.from_numpy(values)
        total = bits_per_dim(model, x, number)
        bits = bits_map(model, x, number).cpu().numpy()
        path = self._new_path()
        save_picture(path, heat_map(values[0], bits[0], self.look))
        return f"{total.item():.4f}", str(path)

    def _uploaded(self, file: str | None) -> NDArray[np.integer]:
        if file is None:
            raise ValueError("there is no file: choose one first")
        return np.asarray(self.trained.examples(file, "all")[0][:1].values)

    def _class_number(self, label: str | None) -> int | None:
        number = self.trained.label(label or None)
        return None if number is None else int(number)

    def _check(self, count: int, seed: int | None) -> None:
        if seed is None:
            raise ValueError("there is no seed: give a whole number")
        require_room(self.trained.model.config, count)

    def _new_path(self, movie: bool = False) -> Path:
        return Path(tempfile.mkdtemp(dir=self.folder)) / ("studio.mp4" if movie else "studio.png")


@dataclass
class SameOrigin:
    """ASGI middleware that refuses what the pages of other sites send: requests whose Origin is not their Host.

    A browser lets any page send files to any address, and names the page's site in Origin. Programs send no Origin.
    """

    app: Any

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer 403 to a foreign request; pass all others on."""
        headers = dict(scope.get("headers", ()))
        origin = headers.get(b"origin")
        host = headers.get(b"host", b"").lower()
        own = (b"http://" + host, b"https://" + host)
        if origin is None or origin.lower() in own:
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close"})
        else:
            await send({"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": b"Studio takes nothing from the pages of other sites"})


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Set variables of the environment within a block; then put back what was there."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def served(
    trained: TrainedModel, host: str = LOCAL[0], port: int | None = None, explain: Explain = str
) -> Iterator[str]:
    """Serve the page within this block, and yield its address."""
    temporary = tempfile.TemporaryDirectory(prefix="axial-studio-", ignore_cleanup_errors=True)
    with temporary as folder, _environment(GRADIO_ANALYTICS_ENABLED="False", GRADIO_TEMP_DIR=folder):
        from starlette.middleware import Middleware
        from starlette.middleware.trustedhost import TrustedHostMiddleware

        # other sites can make a name of theirs lead to this machine
        names = Middleware(TrustedHostMiddleware, allowed_hosts=[*LOCAL] if host in LOCAL else ["*"])
        shown = page(Studio(trained, Path(folder)), explain)
        try:
            _, address, _ = shown.launch(
                server_name=host,
                server_port=port,
                share=False,
                quiet=True,
                prevent_thread_lock=True,
                max_file_size=MAX_MEGABYTES * 10**6,
                footer_links=[],
                app_kwargs={"middleware": [names, Middleware(SameOrigin)]},
            )
        except OSError as error:  # Gradio's message is about its own settings
            where = f"port {port}" if port else "ports from 7860 on"
            raise OSError(f"{host} cannot be served at, {where}: choose another host or port") from error
        try:
            yield address
        finally:
            shown.close(verbose=False)


def page(studio: Studio, explain: Explain) -> Any:
    """Return the page, in Gradio."""
    import gradio as gr

    name = Path(studio.trained.folder).name
    first = studio.trained.model.config.shape[0]

    @contextmanager
    def tab(title: str, action: str, work: Callable[..., Any], text: str = "") -> Iterator[list[Any]]:
        """Show a button below the fields that the block adds to a list; beside them a text, and an image or a movie."""
        fields: list[Any] = []
        with gr.Tab(title), gr.Row():
            with gr.Column(scale=1):
                yield fields
                button = gr.Button(action, variant="primary")
            with gr.Column(scale=2):
                texts = [gr.Textbox(label=text)] if text else []
                results = [*texts, _result(movie=studio.is_clip and work != studio.bits)]
        button.click(
            _handler(studio, work, explain),
            fields,
            results,
            concurrency_limit=1,  # one task at a time, whoever asks
            concurrency_id="model",
            api_visibility="private",
        )

    with gr.Blocks(title=f"Studio: {name}", analytics_enabled=False, delete_cache=(STALE, STALE)) as built:
        gr.Markdown(f"# Studio: {escape(name)}")
        with tab("Sample", "Sample", studio.samples) as fields:
            fields += _sampling_fields(studio, 16)
        with tab("Complete", "Complete", studio.completions, "completions") as fields:
            fields.append(_file_field())
            fields.append(gr.Slider(0, first, first // 2, step=1, label=f"{studio.first_axis} to keep"))
            fields += _sampling_fields(studio, 4)
        with tab("Bits", "Show bits", studio.bits, "bits/dim") as fields:
            fields += [_file_field(), _label_field(studio)]
    return built


def _handler(studio: Studio, work: Callable[..., Any], explain: Explain) -> Callable[..., Any]:
    """Return what a click calls: the work, whose errors become messages on the page."""
    import gradio as gr

    def handler(progress: gr.Progress = gr.Progress(), *values: Any) -> Any:  # noqa: B008
        try:
            return work(progress.tqdm, *values)
        except (ValueError, OSError, MemoryError, RuntimeError) as error:
            text = explain(error)
            if text is None:
                raise
            line = re.sub(rf"{re.escape(str(studio.folder))}/\w+/", "", text)
            raise gr.Error(escape(line, quote=False), duration=None, print_exception=False) from None

    return handler


def _file_field() -> Any:
    import gradio as gr

    return gr.File(label=f"a file of at most {MAX_MEGABYTES} MB: its first example", height=140)


def _label_field(studio: Studio) -> Any:
    import gradio as gr

    return gr.Dropdown(studio.choices, value=studio.choices[0][1], label="class", visible=bool(studio.classes))


def _sampling_fields(studio: Studio, count: int) -> list[Any]:
    import gradio as gr

    return [
        gr.Slider(1, MAX_SAMPLES, count, step=1, label="count"),
        gr.Slider(0, 2, 1, step=0.05, label="temperature"),
        gr.Number(0, precision=0, label="seed"),
        _label_field(studio),
    ]


def _result(movie: bool) -> Any:
    import gradio as gr

    plain: dict[str, Any] = {"show_label": False, "buttons": [], "interactive": False}  # they would cover titles
    return gr.Video(autoplay=True, loop=True, **plain) if movie else gr.Image(type="filepath", **plain)
