"""Arguments that several verbs have, each with its type and its help text."""

from typing import Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg

from axial_transformers import pictures
from axial_transformers.cli import runs

Model = Annotated[str, Positional, arg(help="Folder of a run or of an exported model, or a hub id.")]
Source = Annotated[
    str | None,
    Positional,
    arg(help="Folder, picture, array, video or TFRecord file, shards, or digits. None: the run's own data."),
]
Weights = Annotated[
    runs.Weights, arg(help="The moving average of the weights, or the raw ones of a run's newest checkpoint.")
]
Device = Annotated[str, arg(help="cuda, cuda:1, cpu, ...; auto takes CUDA if there is any.")]
BatchSize = Annotated[int, arg(help="Examples at a time; the result does not depend on it.")]
Temperature = Annotated[
    float, arg(help="1 draws from the model's distribution, less favours likely values, 0 takes the likeliest ones.")
]
Compile = Annotated[bool, FlagCreatePairsOff, arg(help="Compile the decoding, however little there is to do.")]
NoCompile = Annotated[
    bool,
    FlagCreatePairsOff,
    arg(help="Do not compile it, however much there is. With neither flag: only where it saves time."),
]
Scale = Annotated[
    int | None, arg(help="Enlargement of a picture. None: a whole factor that makes it 512 pixels wide at least.")
]
Palette = Annotated[
    pictures.Palette,
    arg(help="Shades, or a colour for each value. auto: colours where one channel has 3 to 12 values."),
]
Fps = Annotated[int, arg(help="Frames per second of a movie.")]
