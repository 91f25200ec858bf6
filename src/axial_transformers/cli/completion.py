"""axial completion: a script that completes verbs, options and recipes in a shell."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Literal

from axial_transformers import recipes
from axial_transformers.cli import VERBS
from axial_transformers.cli.inspect import Options as InspectOptions
from axial_transformers.cli.parsing import Positional, parse
from axial_transformers.cli.settings import Settings
from axial_transformers.cli.wording import option_names

Shell = Literal["bash", "zsh", "fish"]

OPTIONS = {"train": (Settings,), "inspect": (InspectOptions, Settings)}
"""Classes of the options of a verb; otherwise the one that is called as the verb is."""

_BASH = """\
_axial() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" options="" names=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        names={verbs}
    else
        case "${{COMP_WORDS[1]}}" in
{cases}
        esac
    fi
    if [[ "$word" == -* ]]; then
        names="$options"
    fi
    COMPREPLY=($(compgen -W "$names" -- "$word"))
}}
complete -o default -F _axial axial
"""
_BASH_CASE = "            {verb}) options={options} names={names} ;;"

_ZSH = """\
#compdef axial
_axial() {{
    local -a verbs options names
    if (( CURRENT == 2 )); then
        verbs=({verbs})
        _describe verb verbs
        return
    fi
    case $words[2] in
{cases}
    esac
    if [[ $PREFIX == -* ]]; then
        compadd -- $options
    else
        compadd -- $names
        _files
    fi
}}
if [ "$funcstack[1]" = _axial ]; then _axial "$@"; else compdef _axial axial; fi
"""
_ZSH_CASE = "        {verb}) options=({options}) names=({names}) ;;"


@dataclass(frozen=True, kw_only=True)
class Completion:
    """Print a script that completes verbs, options and recipes in a shell; elsewhere files, as before.

    For example:
      axial completion bash > ~/.local/share/bash-completion/completions/axial
      axial completion zsh > ~/.zfunc/_axial    (a folder of fpath, before compinit)
      axial completion fish > ~/.config/fish/completions/axial.fish
    """

    shell: Positional[Shell]
    """The shell that is to read the script."""


def main(argv: Sequence[str]) -> None:
    """Runs the verb."""
    print(script(parse(Completion, argv, "completion").shell), end="")


def script(shell: Shell) -> str:
    """The text of the script."""
    words = {verb: (options(verb), names(verb)) for verb in VERBS}
    if shell == "fish":
        return "".join(_fish(verb, *words[verb]) for verb in VERBS)
    if shell == "bash":
        cases = [
            _BASH_CASE.format(verb=verb, options=shlex.quote(" ".join(flags)), names=shlex.quote(" ".join(known)))
            for verb, (flags, known) in words.items()
        ]
        return _BASH.format(verbs=shlex.quote(" ".join(VERBS)), cases="\n".join(cases))
    cases = [
        _ZSH_CASE.format(verb=verb, options=shlex.join(flags), names=shlex.join(known))
        for verb, (flags, known) in words.items()
    ]
    described = shlex.join(f"{verb}:{summary}" for verb, (summary, _) in VERBS.items())
    return _ZSH.format(verbs=described, cases="\n".join(cases))


def options(verb: str) -> list[str]:
    """The long options of a verb."""
    module = import_module(f"axial_transformers.cli.{verb.replace('-', '_')}")
    kinds = OPTIONS.get(verb) or (getattr(module, verb.title().replace("-", "")),)
    flags = {option.flag: None for kind in kinds for option in option_names(kind).values()}
    return [*flags, *(["--json", "--machine"] if verb == "inspect" else []), "--help"]


def names(verb: str) -> list[str]:
    """Words other than options that a verb knows."""
    return {"train": [*recipes.NAMED], "inspect": [*recipes.NAMED], "completion": ["bash", "zsh", "fish"]}.get(verb, [])


def _fish(verb: str, flags: Sequence[str], known: Sequence[str]) -> str:
    begin, summary = "complete -c axial", shlex.quote(VERBS[verb][0])
    within = f"{begin} -n '__fish_seen_subcommand_from {verb}'"
    lines = [f"{begin} -f -n __fish_use_subcommand -a {verb} -d {summary}"]
    lines += [f"{within} -a {shlex.quote(' '.join(known))}"] if known else []
    lines += [f"{within} -l {flag.removeprefix('--')}" for flag in flags]
    return "\n".join(lines) + "\n"
