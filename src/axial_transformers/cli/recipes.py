"""axial recipes: the named configurations."""

from dataclasses import dataclass
from textwrap import fill

from axial_transformers.recipes import NAMED


@dataclass(frozen=True)
class Recipes:
    """List the recipes: the data of each, the machine that it fits, and the bits/dim that it reaches.

    For example:

        axial recipes
    """


def main(_: Recipes) -> None:
    """Print all recipes in 80 columns."""
    indent = " " * 4
    for name, recipe in NAMED.items():
        print(f"  {name}")
        for text in (f"{recipe.title}; fits {recipe.fits}", recipe.reaches):
            print(fill(text, 80, initial_indent=indent, subsequent_indent=indent))
    print("\nStart one with axial train NAME; its settings: axial train NAME --help")
