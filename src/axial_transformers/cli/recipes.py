"""axial recipes: the named configurations."""

from collections.abc import Sequence
from dataclasses import dataclass

from axial_transformers import recipes
from axial_transformers.cli.parsing import parse


@dataclass(frozen=True)
class Recipes:
    """List the recipes: the data of each, the machine that it fits, and the bits/dim that it reaches.

    For example:
      axial recipes
      axial train digits
    """


def main(argv: Sequence[str]) -> None:
    """Run the command."""
    parse(Recipes, argv, "recipes")
    print(recipes.listed())
    print("\nStart one with axial train NAME; its settings: axial train NAME --help")
