"""axial studio: a page in the browser that shows a model."""

import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from typing import cast

from axial_transformers.cli.console import say
from axial_transformers.cli.options import Device, Fit, Model, Reading, Source, Weights
from axial_transformers.cli.parsing import parse, require_within
from axial_transformers.data import Examples
from axial_transformers.pictures import Palette
from axial_transformers.studio.studio_model import StudioModel
from axial_transformers.training.trained_model import TrainedModel, open_model

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Studio:
    """Explore a model in the browser: samples, completions of erased parts, bits, rankings.

    For example:
      axial studio runs/digits
      axial studio runs/photos my_photos/ --limit 1000
      axial studio runs/clips clips_test.npz --port 8080

    It needs Gradio: pip install 'axial-transformers[studio]', in an environment of its own. Only this machine can open
    the page, and the page asks nothing of any other. Ctrl-C ends it.
    """

    model: Model
    source: Source = None
    _: KW_ONLY
    data: Reading = Reading()
    limit: int = 256
    """Most examples of the source to read, evenly spaced over it."""
    host: str = "127.0.0.1"
    """Address of the page. 0.0.0.0: all of this machine, so that others can open the page."""
    port: int | None = None
    """None: the first free one from 7860."""
    palette: Palette = "auto"
    """Shades, or a colour for each value. auto: colours where one channel has 3 to 12 values."""
    fps: int = 8
    """Frames per second of a movie."""
    weights: Weights = "ema"
    device: Device = "auto"


def main(argv: Sequence[str]) -> None:
    """Run the command."""
    options = parse(Studio, argv, "studio")
    require_within("limit", options.limit, 1)
    require_within("port", options.port, 1, 65535)
    require_within("fps", options.fps, 1, 100)
    if find_spec("gradio") is None:
        raise ValueError("Gradio is missing: pip install 'axial-transformers[studio]', in an environment of its own")
    studio = studio_model(open_model(options.model, options.weights, options.device), options)
    if options.host not in LOOPBACK:
        say(f"warning: whoever reaches {options.host} can use this page: it has no password")
    from axial_transformers.studio.page import served

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that uploaded files are removed
    with suppress(KeyboardInterrupt), served(studio, options.host, options.port) as address:
        say("Studio runs until Ctrl-C, at:")
        print(address, flush=True)
        Event().wait()


def studio_model(opened: TrainedModel, options: Studio) -> StudioModel:
    """Return the model and its data, by the options."""

    def read(path: str, fit: str) -> Examples:
        reading = options.data if fit == "exact" else replace(options.data, fit=cast(Fit, fit))
        return reading.of(opened).examples(path, "all")[0]

    return StudioModel(
        model=opened.model,
        name=Path(options.model).name or str(options.model),
        read=read,
        examples=_examples(options.data.of(opened), options),
        class_names=opened.class_names,
        palette=options.palette,
        fps=options.fps,
    )


def _examples(trained: TrainedModel, options: Studio) -> Examples | None:
    try:
        return trained.examples(options.source, None)[0].spread(options.limit)[:]
    except (ValueError, OSError) as error:
        if options.source is not None:
            raise
        say(f"warning: without data: {error}")
        return None
