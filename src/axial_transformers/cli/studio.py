"""axial studio: a page in the browser that shows a model."""

import signal
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from typing import cast

from axial_transformers.cli.commands import Studio
from axial_transformers.cli.console import require_within, say
from axial_transformers.cli.options import Fit
from axial_transformers.data import Examples
from axial_transformers.studio.studio_model import StudioModel
from axial_transformers.training.trained_model import TrainedModel, open_model

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def main(options: Studio) -> None:
    """Run the command."""
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
