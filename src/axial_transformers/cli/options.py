"""Options that several verbs have, each with its type and its help text."""

from typing import Annotated

import tyro

from axial_transformers.cli.runs import Weights

ModelFolder = Annotated[
    str, tyro.conf.Positional, tyro.conf.arg(help="Folder of a run or of an exported model, or a hub id.")
]
ChosenWeights = Annotated[
    Weights, tyro.conf.arg(help="The moving average of the weights, or the raw ones of a run's newest checkpoint.")
]
Device = Annotated[str, tyro.conf.arg(help="cuda, cuda:1, cpu, ...; auto takes CUDA if there is any.")]
BatchSize = Annotated[int, tyro.conf.arg(help="Examples at a time; the result does not depend on it.")]
Temperature = Annotated[
    float,
    tyro.conf.arg(
        help="1 draws from the model's distribution, less favours likely values, 0 takes the most likely value of "
        "every site."
    ),
]
Compile = Annotated[
    bool, tyro.conf.FlagCreatePairsOff, tyro.conf.arg(help="Compile the decoding, however little there is to do.")
]
NoCompile = Annotated[
    bool,
    tyro.conf.FlagCreatePairsOff,
    tyro.conf.arg(help="Do not compile it, however much there is. With neither flag: only where it saves time."),
]
Fps = Annotated[int, tyro.conf.arg(help="Frames per second of a movie.")]
