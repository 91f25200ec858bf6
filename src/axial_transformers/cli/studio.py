"""axial studio: a page in the browser that shows a model."""

import signal
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from threading import Event
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from axial_transformers.cli.console import say
from axial_transformers.cli.messages import one_line
from axial_transformers.cli.options import OfModel


@dataclass(frozen=True, kw_only=True)
class Studio(OfModel):
    """Look at a model in the browser: samples, and completions and bits of your own files.

    Only this machine can open the page. Ctrl-C ends it.

        axial studio runs/photos --data.cut crop --port 8080
    """

    host: str = "127.0.0.1"
    """Address of the page. 0.0.0.0: all of this machine, so that others can open the page."""
    port: Annotated[int | None, Parameter(validator=Number(gte=1, lte=65535))] = None
    """None: the first free one from 7860."""


def main(options: Studio) -> None:
    """Run the command."""
    if find_spec("gradio") is None:
        raise ValueError("Gradio is missing: pip install 'axial-transformers[studio]', in an environment of its own")
    from axial_transformers.studio import LOCAL, served

    trained = options.opened()
    if options.host not in LOCAL:
        say(f"warning: whoever reaches {options.host} can use this page: it has no password")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that uploaded files are removed
    page = served(trained, options.host, options.port, one_line)
    with suppress(KeyboardInterrupt), page as address:
        say("Studio runs until Ctrl-C, at:")
        print(address, flush=True)
        Event().wait()
