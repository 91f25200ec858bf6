"""axial train: the words of the command, without waiting for torch; `training.py` does the work."""

from collections.abc import Sequence

from axial_transformers import recipes
from axial_transformers.cli import INTERRUPTED
from axial_transformers.cli.console import rank_zero_output
from axial_transformers.cli.settings import resolve_preset
from axial_transformers.progress import rank

HELP = """\
usage: axial train RECIPE [SOURCE] [OVERRIDES]    a recipe, on its own data or on SOURCE
       axial train SOURCE [OVERRIDES]             a model that fits the data in SOURCE
       axial train RUN [OVERRIDES]                resume the run in the folder RUN
       axial train RUN SOURCE [OVERRIDES]         the same, if its data has another path now

  axial train digits --training.steps 500 --model.dim 64
  axial train photos32 my_photos/ --out runs/photos
  axial train scans.npz --training.time-limit 60
  axial train 'shards/train-{000..099}.tar' --data.size 64 --data.fit crop --data.skip-bad 3
  axial train digits --help                       every setting with its default
  torchrun --nproc-per-node 2 -m axial_transformers train photos32 my_photos/    on every GPU or core

SOURCE is a folder of images or arrays, an .npz or .npy file, shards such as 'train-{000..099}.tar', or the word digits.
Recipes, and what they reach:
"""


def main(argv: Sequence[str]) -> int:
    """Run the command."""
    if not argv or argv[0] in ("-h", "--help"):
        print(HELP)
        print(recipes.listed())
        return 0
    with rank_zero_output():
        preset = resolve_preset(argv, "train")
    from axial_transformers.cli.training import report, run

    result = run(preset, ("train", *argv))
    if rank() == 0:  # of the processes that torchrun started, one speaks
        report(preset.settings.out, result)
    return INTERRUPTED if result.ending == "interrupted" else 0
