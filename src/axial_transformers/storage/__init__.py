"""Storage: files written whole or not at all, typed JSON, model folders, TensorFlow's formats."""

from importlib.util import find_spec

from axial_transformers.messages import Message


def require_extra(extra: str, package: str, what: str) -> None:
    """Raise ValueError, with the command to install, where `what` needs a missing package."""
    if find_spec(package) is None:
        raise ValueError(Message("{} needs the package {}: pip install 'axial-transformers[{}]'", what, package, extra))
