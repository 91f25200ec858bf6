"""The command `axial`: its words are read without torch, then its file is imported."""

import os
import sys
import warnings
from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from typing import Any

from axial_transformers.cli.console import OPTIONS, prepare_streams, printable, rank_zero_output, show_log
from axial_transformers.messages import Message, message_of

GROUPS = {
    "Train": {
        "demo": ("train on handwritten digits and show the results on one page", "axial demo"),
        "train": ("train a recipe, or a model of your own data", "axial train digits --training.steps 500"),
        "recipes": ("list the recipes, and what they reach", "axial recipes"),
    },
    "Look": {
        "evaluate": ("exact bits/dim of a data set", "axial evaluate runs/digits"),
        "score": (
            "scores of all examples, the most unusual first",
            "axial score runs/fashion_mnist photos/ --output scores.csv",
        ),
        "sample": ("sample new examples", "axial sample runs/digits --count 64 --output samples.png"),
        "complete": (
            "complete images, clips or sequences that are partly known",
            "axial complete runs/digits --rows 4",
        ),
        "studio": ("look at a model in the browser: samples, completions, bits", "axial studio runs/digits"),
        "inspect": ("see data, and what axial train would do with it; a model; an archive", "axial inspect my_photos/"),
    },
    "Compress": {
        "compress": ("compress images into one file, losslessly", "axial compress runs/photos photos/ a.axl --embed"),
        "decompress": ("restore the images of such a file", "axial decompress a.axl restored/"),
    },
    "Exchange": {
        "push": ("upload a model to the Hugging Face hub", "axial push runs/digits alice/digits --dry-run"),
        "import-official": (
            "convert the authors' TensorFlow checkpoints",
            "axial import-official logdir -o models/imagenet32",
        ),
    },
    "This machine": {
        "doctor": ("check what differs between processors; say which parts can be trusted here", "axial doctor"),
        "completion": ("a script that completes commands and options in a shell", "axial completion bash"),
    },
}
"""Summary and example of each command, in the order of the help."""

COMMANDS = {name: texts for group in GROUPS.values() for name, texts in group.items()}

DIVIDED = ("train", "evaluate", "score", "sample")
"""Commands whose work the processes of torchrun divide. All others run in the first process, and the others end."""

USAGE_ERROR, INTERRUPTED = 2, 130

WAITING, SHORT_WAIT = "GOMP_SPINCOUNT", "1000"
"""Environment variable of GNU OpenMP."""

LESS_MEMORY = {
    "train": "lower --training.batch-size, or raise --training.accumulate",
    "evaluate": "lower --batch-size",
    "sample": "lower --count or --scale",
    "complete": "lower --examples, --count or --scale",
    "score": "lower --batch-size",
    "studio": "sample fewer, or use a smaller file",
    "compress": "set OMP_NUM_THREADS=1, which codes one chunk at a time",
    "decompress": "set OMP_NUM_THREADS=1, which decodes one chunk at a time",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run `axial COMMAND ...`; return the exit status: 0, 1 for an archive that would not pay, 2 for an error.

    It is 130 after Ctrl-C.

    Users' mistakes are one line on stderr, or a traceback if AXIAL_TRACEBACK is set.
    """
    prepare_streams()
    _bound_waiting()
    command, *rest = (sys.argv[1:] if argv is None else list(argv)) or ["--help"]
    warnings.showwarning = _shows_each_once()
    OPTIONS.clear()
    try:
        status = _run(command, rest)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return INTERRUPTED
    except (ValueError, OSError, MemoryError, RuntimeError, SystemError) as error:
        message = one_line(command, error)
        if message is None or os.environ.get("AXIAL_TRACEBACK"):
            raise
        return _fail(f"axial {command}", message, getattr(error, "exit_status", USAGE_ERROR))


def _bound_waiting() -> None:
    """Let idle threads of torch's OpenMP sleep after about 50 us instead of 15 ms, which slows other processes."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault(WAITING, SHORT_WAIT)


def _run(command: str, argv: Sequence[str]) -> int:
    if command not in DIVIDED:
        if os.environ.get("RANK", "0") != "0":
            return 0
        for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
            os.environ.pop(name, None)
    if command in ("-h", "--help"):
        print(_help())
        return 0
    if command == "--version":
        from importlib.metadata import version  # slow to import

        print(version("axial-transformers"))
        return 0
    if command not in COMMANDS:
        return _fail("axial", f"no command {command!r}{did_you_mean(command, COMMANDS)}")

    if any(not word or (word.startswith("--") and word.endswith("=")) for word in argv):
        return _fail(f"axial {command}", "a word is empty, as where a variable is not set: give a name or a value")
    show_log()
    options: Any = argv
    if command not in ("train", "inspect"):  # whose words say which options there are
        from axial_transformers.cli.commands import OPTIONS_OF  # slow to import
        from axial_transformers.cli.parsing import parse

        with rank_zero_output():
            options = parse(OPTIONS_OF[command], argv, command)
    return import_module(f"{__name__}.{command.replace('-', '_')}").main(options) or 0


def did_you_mean(word: str, known: Collection[str]) -> str:
    """Return the end of an error message about an unknown word."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return (f": perhaps you meant {near[0]}" if near else "") + f" (there are: {', '.join(known)})"


def _help() -> str:
    lines = ["usage: axial COMMAND ...", "", "Axial Transformers: exact likelihood, sampling, compression.", ""]
    for group, commands in GROUPS.items():
        lines.append(group)
        for command, (summary, example) in commands.items():
            lines += [f"  {command:<16}{summary}", f"{'':18}{_dim(example)}"]
        lines.append("")
    return "\n".join(
        [*lines, "axial COMMAND --help explains each command. AXIAL_TRACEBACK=1 shows the traceback of an error."]
    )


def _dim(text: str) -> str:
    return f"\033[2m{text}\033[0m" if sys.stdout.isatty() else text


def _fail(who: str, message: str, status: int = USAGE_ERROR) -> int:
    print(f"{who}: {message}", file=sys.stderr)
    return status


def one_line(command: str, error: Exception) -> str | None:
    """Return the message of an error, in the words of a command; None for a RuntimeError that is a bug."""
    text = " ".join(_in_options(message_of(error)).split())
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError | SystemError) and _says_out_of_memory(text)):
        hint = LESS_MEMORY.get(command, "free some, or use a machine with more")
        return f"not enough memory: {hint}" + f" ({printable(text)})" * bool(text)
    if isinstance(error, RuntimeError | SystemError):
        return None
    if isinstance(error, OSError) and error.strerror:
        named = isinstance(error.filename, str | bytes | os.PathLike)
        return f"{printable(os.fsdecode(error.filename))}: {error.strerror}" if named else error.strerror
    return printable(text) or type(error).__name__


def _in_options(text: str) -> str:
    def option(setting: str, value: str | tuple[object, ...] | None) -> str | None:
        return next((found for each in OPTIONS if (found := each(setting, value))), None)

    return text.worded(option) if isinstance(text, Message) else text


def _says_out_of_memory(text: str) -> bool:
    signs = (
        "allocate memory", "out of memory", "start new thread", "Storage size calculation overflowed",
        "error return without exception set",  # CPython 3.11, of an import
    )  # fmt: skip
    return any(words in text for words in signs)


def _shows_each_once() -> Callable[..., None]:
    """Replace Python's own memory of warnings, which `catch_warnings` loses."""
    said = set[str]()

    def show(message: Warning, *_: object, **__: object) -> None:
        line = f"warning: {printable(_in_options(message_of(message)))}"
        if line not in said:
            said.add(line)
            print(line, file=sys.stderr)

    return show
