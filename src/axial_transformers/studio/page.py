"""The page in Gradio."""

import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any, Literal

import gradio as gr
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from starlette.middleware import Middleware

from axial_transformers.likelihood.outliers import RankBy, Scores, are_images, ranking, score
from axial_transformers.messages import Message
from axial_transformers.pictures.completions import MARK
from axial_transformers.progress import Progress
from axial_transformers.studio import actions, views
from axial_transformers.studio.actions import Jobs, StoppedError
from axial_transformers.studio.request_limits import RequestLimits
from axial_transformers.studio.studio_model import MAX_MEGABYTES, MAX_STORED, StudioModel

STALE = 3600
"""Seconds."""
WAITING = 16
BRUSH = 20
"""Least radius, in pixels of the enlarged image."""
FONTS = ["system-ui", "sans-serif"]
MONOSPACE = ["ui-monospace", "monospace"]
MAX_THUMBNAILS = 60
STYLE = """
.thumbnails .grid-container {
    grid-template-columns: repeat(auto-fill, 3rem) !important; grid-auto-rows: 3rem !important;
    gap: .25rem; padding-top: 1.5rem;
}
.thumbnails button.thumbnail-item { width: 3rem; height: 3rem; }
.thumbnails img { image-rendering: pixelated; }
figure { margin: 0; }
figure img, table.ranking img { image-rendering: pixelated; max-width: 100%; }
figure video { max-width: 100%; }
figcaption { opacity: .7; font-size: .875rem; margin-top: .3rem; }
table.ranking td, table.ranking th { padding: .25rem .6rem; text-align: left; font-variant-numeric: tabular-nums; }
.scale { display: flex; align-items: center; gap: .6rem; margin-top: .8rem; }
.scale i { flex: 0 0 10rem; height: .7rem; }
.facts { display: flex; flex-wrap: wrap; gap: .2rem 1.5rem; margin: 0; }
.facts dt { opacity: .7; }
.facts dd { margin: 0 0 0 -1rem; overflow-wrap: anywhere; }
"""

View = Callable[..., Any]


@contextmanager
def served(studio: StudioModel, host: str = "127.0.0.1", port: int | None = None) -> Iterator[str]:
    """Serve the page within this block, and yield its address."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    with tempfile.TemporaryDirectory(prefix="axial-studio-", ignore_cleanup_errors=True) as folder:
        os.environ["GRADIO_TEMP_DIR"] = folder
        page = Studio(studio).page()
        page.queue(max_size=WAITING)
        names = ("localhost", host.lower(), socket.gethostname().lower())
        limits = Middleware(RequestLimits, names=names, folder=Path(folder), most=MAX_STORED * 10**6)
        try:
            _, address, _ = page.launch(
                server_name=host,
                server_port=port,
                share=False,
                quiet=True,
                prevent_thread_lock=True,
                app_kwargs={"middleware": [limits]},
                max_file_size=MAX_MEGABYTES * 10**6,
                theme=gr.themes.Default(primary_hue="indigo", font=FONTS, font_mono=MONOSPACE),
                css=STYLE,
                footer_links=[],
                ssr_mode=False,
                mcp_server=False,
                enable_monitoring=False,
            )
        except OSError as error:  # Gradio's message is about its own settings
            where = f"port {port}" if port else "ports from 7860 on"
            raise OSError(
                Message("{} cannot be served at, {}: choose another {host=} or {port=}", host, where)
            ) from error
        try:
            yield address
        finally:
            page.close(verbose=False)


class Studio:
    """The page of one model."""

    def __init__(self, studio: StudioModel) -> None:
        self._studio, self._jobs = studio, Jobs()
        self._typical: Scores | None = None

    def page(self) -> gr.Blocks:
        with gr.Blocks(
            title=f"Studio: {self._studio.name}", analytics_enabled=False, delete_cache=(STALE, STALE)
        ) as page:
            gr.HTML(views.described(self._studio))
            with gr.Tab("Sample"):
                self._sample_tab(page)
            with gr.Tab("Complete"):
                self._complete_tab(page)
            with gr.Tab("Bits"):
                self._bits_tab(page)
            with gr.Tab("Rank"):
                self._rank_tab()
            page.unload(self._leave)
        return page

    def _sample_tab(self, page: Any) -> None:
        with gr.Row():
            with gr.Column(scale=1):
                fields = self._sampling_fields(count=16)
                buttons = self._buttons("New samples")
            with gr.Column(scale=2):
                shown = gr.HTML(elem_id="samples")
        self._on(buttons, self._sample, fields, shown, page)

    def _complete_tab(self, page: Any) -> None:
        with gr.Row():
            with gr.Column(scale=1):
                example = gr.State()
                picker = self._picker()
                fields = self._sampling_fields(count=4)
            with gr.Column(scale=2):
                editor = gr.ImageEditor(
                    label="erase with the brush",
                    image_mode="RGBA",
                    sources=(),
                    transforms=(),
                    layers=False,
                    height=600,
                    elem_id="editor",
                )
                axis = {1: "positions", 2: "rows", 3: "frames"}[len(self._studio.model.config.shape)]
                end = gr.Slider(0, self._studio.model.config.shape[0], 0, step=1, label=f"or erase the last {axis}")
                buttons = self._buttons("Complete")
                shown = gr.HTML(elem_id="completions")
        self._on_pick(page, picker, self._picked_to_paint, [example, editor])
        self._on(buttons, self._complete, [example, editor, end, *fields], shown)

    def _bits_tab(self, page: Any) -> None:
        with gr.Row():
            with gr.Column(scale=1):
                example = gr.State()
                picker = self._picker()
                label = self._label_field()
                opacity = gr.Slider(0, 1, 0.6, step=0.05, label="opacity")
                buttons = self._buttons("Show bits")
            with gr.Column(scale=2):
                shown = gr.HTML(elem_id="bits")
        self._on_pick(page, picker, self._picked, [example])
        self._on(buttons, self._bits, [example, label, opacity], shown)

    def _rank_tab(self) -> None:
        with gr.Row():
            with gr.Column(scale=1):
                files = gr.File(label="pictures, arrays or clips", file_count="multiple", elem_id="files")
                fit = self._fit_field()
                scores = [("automatic", ""), ("bits/dim", "bits"), ("bits/dim less PNG", "corrected")]
                by = gr.Radio(scores, value="", label="rank by", visible=are_images(self._studio.model.config))
                buttons = self._buttons("Rank")
            with gr.Column(scale=2):
                shown = gr.HTML(elem_id="ranking")
        self._on(buttons, self._rank, [files, fit, by], shown)

    def _sampling_fields(self, count: int) -> list[Any]:
        return [
            gr.Slider(1, actions.MAX_SAMPLES, count, step=1, label="count"),
            gr.Slider(0, 2, 1, step=0.05, label="temperature"),
            gr.Slider(0.05, 1, 1, step=0.05, label="top-p"),
            self._label_field(),
            gr.Number(0, precision=0, label="seed"),
        ]

    def _label_field(self) -> Any:
        classes = self._studio.classes
        choices = [("none", -1), *((name, number) for number, name in enumerate(classes))]
        return gr.Dropdown(choices, value=-1, label="class", visible=bool(classes))

    def _fit_field(self) -> Any:
        return gr.Dropdown(
            ["exact", "crop", "stretch", "tiles"], value="exact", label="fit of pictures of another size"
        )

    def _picker(self) -> tuple[list[Any], list[Any]]:
        number, examples, events = gr.State(0), self._studio.examples, []
        if examples is not None:
            positions = np.linspace(0, len(examples) - 1, min(len(examples), MAX_THUMBNAILS)).astype(np.int64)

            def pick(event: gr.SelectData) -> int:
                return int(positions[event.index])

            gallery = gr.Gallery(
                views.thumbnails(self._studio, examples.values[positions]),
                label="examples of the data",
                height=220,
                allow_preview=False,
                buttons=[],
                elem_classes="thumbnails",
            )
            events.append(gallery.select(pick, None, number, api_visibility="private").then)
        file = gr.File(label="or a file: its first example", file_count="single", height=140, elem_classes="file")
        fit = self._fit_field()
        return [number, file, fit], [*events, file.upload, file.clear, fit.change]

    def _buttons(self, name: str) -> tuple[Any, Any]:
        with gr.Row():
            return gr.Button(name, variant="primary"), gr.Button("Stop")

    def _on_pick(self, page: Any, picker: tuple[list[Any], list[Any]], work: View, outputs: list[Any]) -> None:
        fields, events = picker
        if self._studio.examples is not None:
            events.append(page.load)
        for event in events:
            event(
                self._guarded(work, stoppable=False),
                fields,
                outputs,
                show_progress="hidden",
                api_visibility="private",
            )

    def _on(self, buttons: tuple[Any, Any], work: View, inputs: list[Any], shown: Any, page: Any | None = None) -> None:
        begin, stop = buttons
        for event in [begin.click, *([page.load] if page else [])]:
            event(
                self._guarded(work),
                inputs,
                shown,
                concurrency_limit=1,
                concurrency_id="model",
                api_visibility="private",
            )
        stop.click(self._stop, queue=False, api_visibility="private")

    def _guarded(self, work: View, stoppable: bool = True) -> View:
        def handler(request: gr.Request, progress: gr.Progress = gr.Progress(), *values: Any) -> Any:  # noqa: B008
            steps: Progress = iter
            if stoppable:
                steps = self._jobs.begin(request.session_hash, progress.tqdm)
            try:
                return work(steps, *values)
            except StoppedError:
                gr.Info("Stopped.")
                return gr.skip()
            except (ValueError, OSError, MemoryError, RuntimeError) as error:
                if (text := one_line(error)) is None:
                    raise
                raise gr.Error(escape(text, quote=False), duration=None, print_exception=False) from None

        return handler

    def _stop(self, request: gr.Request) -> None:
        self._jobs.stop(request.session_hash)

    def _leave(self, request: gr.Request) -> None:
        self._jobs.end(request.session_hash)

    def _sample(self, progress: Progress, *options: Any) -> str:
        return views.samples(self._studio, actions.new_samples(self._studio, _sampling_options(*options), progress))

    def _picked(self, progress: Progress, number: float, file: str | None, fit: str) -> NDArray[np.uint8] | None:
        if file is not None:
            return self._studio.files([file], fit)[0][0]
        return None if self._studio.examples is None else self._studio.examples.values[int(number)]

    def _picked_to_paint(self, progress: Progress, *choice: Any) -> tuple[NDArray[np.uint8] | None, Any]:
        example = self._picked(progress, *choice)
        if example is None:
            return None, None
        picture, scale = views.to_paint(self._studio, example)
        brush = gr.Brush(default_size=max(scale // 2, BRUSH), colors=[MARK], color_mode="fixed")
        return example, gr.ImageEditor(picture, brush=brush)

    def _complete(
        self,
        progress: Progress,
        example: NDArray[np.uint8] | None,
        editor: dict[str, Any] | None,
        end: float,
        *options: Any,
    ) -> str:
        example = _given(example)
        shape = self._studio.model.config.shape
        height, width = views.displayed(self._studio, example[None]).shape[1:3]
        painted = np.zeros((height, width), bool)
        for layer in editor["layers"] if editor else ():
            covered = Image.fromarray(layer[..., 3]).point(lambda alpha: 255 * (alpha > 0))
            painted |= np.asarray(covered.resize((width, height), Image.Resampling.BOX)) > 127
        erased = actions.erased_positions(painted, shape)
        erased[shape[0] - int(end) :] = True
        values = actions.new_completions(self._studio, example, erased, _sampling_options(*options), progress)
        return views.completions(self._studio, example, erased, values)

    def _bits(self, progress: Progress, example: NDArray[np.uint8] | None, label: int, opacity: float) -> str:
        return views.bits(self._studio, _given(example), None if label < 0 else label, opacity)

    def _rank(self, progress: Progress, files: list[str] | None, fit: str, by: RankBy | Literal[""]) -> str:
        values, names = self._studio.files(files or [], fit)
        if self._typical is None and self._studio.examples is not None:
            self._typical = score(self._studio.model, self._studio.examples.values, progress=progress)
        scores = score(self._studio.model, values, progress=progress)
        chosen = ranking(self._typical or scores, by or None)
        return views.ranking(self._studio, values, names, scores, self._typical, *chosen)


def one_line(error: Exception) -> str | None:
    """Return an error's message on one line; None for a RuntimeError that is a bug."""
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError) or "allocate memory" in text or "out of memory" in text:
        return "not enough memory: ask for fewer at a time"
    return None if isinstance(error, RuntimeError) else text or type(error).__name__


def _given(example: NDArray[np.uint8] | None) -> NDArray[np.uint8]:
    if example is None:
        raise ValueError("there is no picture: choose an example of the data, or a file")
    return example


def _sampling_options(
    count: float, temperature: float, top_p: float, label: int, seed: float | None
) -> actions.SamplingOptions:
    if seed is None:
        raise ValueError("seed must be a whole number")
    return actions.SamplingOptions(
        count=int(count), temperature=temperature, top_p=top_p, label=None if label < 0 else label, seed=int(seed)
    )
