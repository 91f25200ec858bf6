"""axial studio: a page in the browser that shows a model."""

import signal
from contextlib import suppress
from importlib.util import find_spec
from threading import Event

from axial_transformers.cli import one_line
from axial_transformers.cli.commands import Studio
from axial_transformers.cli.console import say
from axial_transformers.studio import LOCAL, served


def main(options: Studio) -> None:
    """Run the command."""
    if find_spec("gradio") is None:
        raise ValueError("Gradio is missing: pip install 'axial-transformers[studio]', in an environment of its own")
    trained = options.opened()
    if options.host not in LOCAL:
        say(f"warning: whoever reaches {options.host} can use this page: it has no password")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that uploaded files are removed
    page = served(trained, options.host, options.port, one_line)
    with suppress(KeyboardInterrupt), page as address:
        say("Studio runs until Ctrl-C, at:")
        print(address, flush=True)
        Event().wait()
