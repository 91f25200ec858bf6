"""axial recipes: the named configurations."""

from axial_transformers import recipes
from axial_transformers.cli.commands import Recipes


def main(_: Recipes) -> None:
    """Run the command."""
    print(recipes.listed())
    print("\nStart one with axial train NAME; its settings: axial train NAME --help")
