"""python -m axial_transformers, the same as the command `axial`."""

import sys

from axial_transformers.cli import main

sys.exit(main())
