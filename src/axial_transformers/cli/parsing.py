"""From the words of a command to its options: a cyclopts App, whose commands are dataclasses."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import is_dataclass, make_dataclass
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from cyclopts import App, ArgumentCollection, Parameter, convert

from axial_transformers.cli.options import NO_OPTION
from axial_transformers.storage.settings import parts_of

Options = TypeVar("Options")
HELP = ("-h", "--help")
ONE_OR_SEVERAL = Parameter(converter=lambda _, words: convert(tuple[int, ...] if words[1:] else int, words))
"""For a union of an int and a tuple, of which cyclopts takes one word where another option follows."""

DECIDED_BY_TRAINING = ("model.needs_label",)
"""Fields of the settings that are no options."""


def refuse_fractions(_: App, __: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Raise ValueError for a word such as 1.5 where a whole number is needed, which cyclopts would round."""
    for argument in arguments:
        types = parts_of(argument.hint)
        if int not in types or float in types or str in types:
            continue
        for token in argument.tokens:
            if "." in token.value:
                raise ValueError(
                    f"{token.keyword or argument.name} must be a whole number without a point, not {token.value}"
                )


def make_parser(options: Callable[..., Any] | None, name: str, **more: Any) -> App:
    """Return the parser of a command; `more` are arguments of cyclopts."""
    usage = getattr(options, "USAGE", None)
    return App(
        name=name,
        default_command=options,
        usage=usage and f"Usage: axial {name} {usage}",
        default_parameter=Parameter(allow_repeating=True, consume_multiple=True, negative_iterable=(), json_dict=False),
        config=refuse_fractions,
        help_format="markdown",
        result_action="return_value",
        **more,
    )


def parse(options: Callable[..., Options], words: Sequence[str]) -> Options:
    """Return the options in words; or print the help, and exit."""
    app = make_parser(options, "train", version_flags=())
    app["--help"].show = False
    options_given = app(words, exit_on_error=False, print_error=False)
    if options_given is None:
        raise SystemExit(0)
    return options_given


def parse_known(options: Callable[..., Options], words: Sequence[str]) -> tuple[Options, list[str]]:
    """Return the known options, and the other words, those for help among them."""
    known = [word for word in words if word not in HELP]
    make, bound, others, _ = make_parser(options, "", version_flags=()).parse_known_args(known)
    return make(*bound.args, **bound.kwargs), [*others, *(word for word in words if word in HELP)]


def with_defaults(value: Any, undecided: Collection[str], prefix: str = "") -> type[Any]:
    """Return the class of a dataclass with the values of `value` as defaults; `undecided` ones suit the data."""
    base = type(value)
    hints = get_type_hints(base, include_extras=True)
    members: list[tuple[str, Any, Any]] = []
    for name, default in vars(value).items():
        hint = hints[name]
        if {int, tuple[int, ...]} <= {*get_args(getattr(hint, "__origin__", None))}:
            hint = Annotated[tuple[int, ...] | None, ONE_OR_SEVERAL]
        if is_dataclass(default):
            hint = Annotated[with_defaults(default, undecided, f"{name}."), Parameter(group=name.capitalize())]
        elif prefix + name in DECIDED_BY_TRAINING:
            hint = Annotated[hint, NO_OPTION]
        elif prefix + name in undecided:
            hint = Annotated[hint, Parameter(show_default=lambda _: "as suits the data")]
        members.append((name, hint, default))
    namespace = {"__module__": __name__, "__doc__": base.__doc__}
    return make_dataclass(base.__name__, members, bases=(base,), namespace=namespace, frozen=True, kw_only=True)
