"""python -m axial_transformers.cli, for torchrun and wherever the command `axial` is not on the path."""

import sys

from axial_transformers.cli import main

sys.exit(main())
