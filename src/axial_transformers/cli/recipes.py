"""axial recipes: the named configurations."""

from dataclasses import dataclass

from axial_transformers import recipes


@dataclass(frozen=True)
class Recipes:
    """List the recipes: the data of each, the machine that it fits, and the bits/dim that it reaches.

    For example:

        axial recipes
    """


def main(_: Recipes) -> None:
    """Run the command."""
    print(recipes.listed())
    print("\nStart one with axial train NAME; its settings: axial train NAME --help")
