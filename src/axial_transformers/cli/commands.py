"""The options of each command: the texts are the help."""

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from axial_transformers.cli.options import (
    OfModel,
    OnData,
    Positive,
    Precision,
    Sampling,
    Shades,
    Source,
    Split,
    Weights,
)
from axial_transformers.training import RunConfig

NO_OPTION = Parameter(parse=False)
REQUIRED = Parameter(required=True)
Words = tuple[str | Path | None, Path, Path]
"""Model, source and target of a command."""


def _words(model: str | Path | None, source: Path | None, target: Path | None, names: str) -> Words:
    """Return the words of a command whose first one may be left out; the model is then None.

    Raises:
        ValueError: source or target is missing.
    """
    if target is None:
        model, source, target = None, model and Path(model), source
    if source is None or target is None:
        raise ValueError(f"{names} are both needed")
    return model, source, target


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Train a small model on handwritten digits in minutes, and show the results on one page.

    A second call finds the trained model in OUT/run and only writes the page again.

        axial demo
    """

    out: Path = Path("demo")
    """Folder for the page and the run."""
    steps: int | None = None
    """Training steps. None: the recipe's."""


@dataclass(frozen=True, kw_only=True)
class Train(RunConfig):
    """Train a recipe, or a model of your own data; or resume a run.

    SOURCE is a folder of images or arrays, an .npz or .npy file, a data set (hf:OWNER/NAME, .parquet, .tar), or digits.
    axial train RECIPE --help shows every setting with its default.

        axial train photos32 my_photos/ --out runs/photos    a recipe, on its own data or on a source
        axial train scans.npz --training.minutes 60          a model that fits the data
        axial train runs/photos                              resume a run; add a source if its data has moved
        torchrun --nproc-per-node 2 -m axial_transformers train digits --model.dim 96
    """

    USAGE: ClassVar[str] = "RECIPE|SOURCE|RUN [SOURCE] [OPTIONS]"

    recipe: Annotated[str | None, NO_OPTION] = None
    source: Annotated[str | None, NO_OPTION] = None
    open: Annotated[tuple[str, ...], NO_OPTION] = ()
    start_from: Annotated[str | None, Parameter(name="--from")] = None
    resume: bool = False
    """Continue the run in the folder bitwise (on CUDA only with training.deterministic)."""


@dataclass(frozen=True)
class Recipes:
    """List the recipes: the data of each, the machine that it fits, and the bits/dim that it reaches.

    For example:

        axial recipes
    """


@dataclass(frozen=True)
class Evaluate(OnData):
    """Exact bits/dim over every example of a data set.

    For example:

        axial evaluate runs/fashion_mnist fashion_mnist_test.npz --json
        axial evaluate runs/photos other_photos/ --data.cut crop --data.size 32
    """

    _: KW_ONLY
    labels: bool = False
    """Condition a class-conditional model on the labels. One that was trained with labels only always gets them."""
    given_frames: Annotated[int, Parameter(validator=Number(gte=0))] = 0
    """First frames of a clip, or rows of an image, whose bits do not count."""
    precision: Precision = "float32"
    json: bool = False
    """Print one JSON object."""


@dataclass(frozen=True)
class Score(OnData, Shades):
    """Scores of all examples, the most unusual first, to find anomalies.

    For example:

        axial score runs/photos new_photos/ --output scores.csv --heat-maps maps/
        axial score runs/fashion_mnist USUAL.npz --against ANOMALIES.npz
    """

    _: KW_ONLY
    rank_by: Literal["bits", "corrected", "deviation"] | None = None
    """None: what suits the data; a line says which, and why."""
    typical: str | Path | None = None
    """A source of usual examples, for quantiles. None: the scores of its validation part that a run has kept."""
    flag: Annotated[float | None, Parameter(validator=Number(gt=0, lt=1))] = None
    """Mark examples whose quantile is above this, such as 0.99, and count them."""
    output: Path | None = None
    """NAME.csv or NAME.json: the scores of all examples. None: print the `top` as CSV."""
    heat_maps: Path | None = None
    """A new folder for heat maps of the `top` examples, and scores.html, which shows them."""
    top: Positive = 20
    """Number of the most unusual examples that are printed, and of heat maps."""
    against: str | Path | None = None
    """A source of anomalies, where SOURCE holds usual examples. Prints the AUROC of each score: 0.5 is chance."""
    precision: Precision = "auto"


@dataclass(frozen=True, kw_only=True)
class Sample(Sampling):
    """Sample new examples. The suffix of --output sets the format.

    For example:

        axial sample runs/digits --label 3 --temperature 0.9 --output threes.png
        axial sample runs/clips --known clips_test.npz --output clips.mp4
    """

    output: Path = Path("samples.png")
    """NAME.png: one grid. A folder: one PNG file per sample. NAME.npz, .npy, .nii.gz or .tif: an array. Of clips also
    NAME.mp4 or .gif: a grid that plays. Only images and movies are replaced."""
    count: Positive = 16
    """Number of samples."""
    top_k: int | None = None
    """Sample each value from the k most likely ones."""
    top_p: float | None = None
    """Sample each value from the fewest most likely ones that together reach this probability."""
    known: str | Path | None = None
    """Source of the known channels, such as a clip's first frames, for models that need them."""


@dataclass(frozen=True)
class Complete(Sampling):
    """Complete images, clips or sequences that are partly known (inpainting), several times each.

    Completions are exact samples from p(missing | known) where the known positions come first in the generation order.
    Otherwise an error names layouts where they do.

        axial complete runs/photos my_photos/ --rows 16 --count 6 --output completions.png
        axial complete runs/clips clips_test.npz --frames 1 --output continued.mp4
    """

    source: Source = None
    _: KW_ONLY
    split: Split = None
    rows: int | None = None
    """The first rows are known."""
    frames: int | None = None
    """The first frames are known."""
    mask: Path | None = None
    """An image, opaque where known, or without transparency not black there; or an .npy file of booleans per position
    (and channel), true where known."""
    approximate: bool = False
    """Allow any mask. Earlier values then do not depend on the known ones after them."""
    examples: Positive = 8
    """Number of examples to complete, evenly spaced over the source."""
    only: tuple[str, ...] | None = None
    """Complete these examples instead: names that axial score prints, such as --only 3 17; or, where these are no
    numbers, positions from 0."""
    count: Positive = 4
    """Completions of each."""
    output: Path = Path("completions.png")
    """NAME.png: known part, completions and original side by side. Other files of axial sample: the completions."""


@dataclass(frozen=True, kw_only=True)
class Studio(OfModel):
    """Look at a model in the browser: samples, and completions and bits of your own files.

    Only this machine can open the page. Ctrl-C ends it.

        axial studio runs/photos --data.cut crop --port 8080
    """

    host: str = "127.0.0.1"
    """Address of the page. 0.0.0.0: all of this machine, so that others can open the page."""
    port: Annotated[int | None, Parameter(validator=Number(gte=1, lte=65535))] = None
    """None: the first free one from 7860."""


@dataclass(frozen=True)
class Inspect:
    """Show data as axial train reads them, and what it would train; or a model, or an archive.

    It takes the settings of axial train, too. Compare memory and FLOPs of a step with a device's data sheet.

        axial inspect my_photos/               data: kind, number, splits, values; then the plan of axial train
        axial inspect imagenet32 --model.dim 1024
        axial inspect runs/digits              a run, an exported model, or a hub id
        axial inspect photos.axl               an archive: model, files, sizes, how to open it
    """

    USAGE: ClassVar[str] = "SOURCE|RECIPE|MODEL|ARCHIVE [OPTIONS]"

    name: str
    """A source, a recipe, with or without a source after it; a run, a model, or an archive."""
    _: KW_ONLY
    json: bool = False
    """Print one JSON object; bytes, FLOPs."""


@dataclass(frozen=True)
class Compress:
    """Compress images, an array, a table, a scan or clips into one file, losslessly.

    A small model is trained on the source for five minutes, or for as many as --minutes says, and stored in the file.
    With MODEL, that is stored and codes the data.

        axial compress icons/ icons.axl
        axial compress head.nii.gz head.axl --minutes 60
        axial compress runs/fashion_mnist fashion_mnist.npz all.axl
    """

    USAGE: ClassVar[str] = "[MODEL] SOURCE ARCHIVE [OPTIONS]"

    model: str | Path | None = None
    """Folder of a run or of an exported model, or a hub id. Leave it out, and one is trained."""
    source: Annotated[Path | None, REQUIRED] = None
    """What axial train reads, or an image. Files return with equal values, in their or the nearest lossless format."""
    archive: Path | None = None
    """The file to write, NAME.axl."""
    _: KW_ONLY
    minutes: float | None = None
    """Minutes of training; 5 without MODEL. Ctrl-C ends it early; the same command goes on with it, from the folder
    ARCHIVE.run."""
    start_from: Annotated[str | None, Parameter(name="--from")] = None
    """Begin the training with the weights of this model in place of random ones."""
    size: Annotated[tuple[int, ...] | None, Parameter(name="--data.size")] = None
    """The side of tiles of images, or the sides of blocks of an array or scan, such as 8 8 128, of a trained model."""
    axes: Annotated[str | None, Parameter(name="--data.axes")] = None
    """Axes of an array, one letter each, such as NCHW; as for axial train."""
    key: Annotated[str | None, Parameter(name="--data.key")] = None
    """Name of the array within an .npz file that the model codes; the others are stored."""
    embed: bool = True
    """Store the model, with rounded weights. Without it, decompressing needs MODEL."""
    only_data: bool = False
    """Leave out the files of a folder that are no data."""
    force: bool = False
    """Replace the archive. Write one that is larger than the source, or than zlib of its values."""
    verify: bool = True
    """Decompress and compare before the file appears."""
    compare: bool = False
    """Also print bytes and bits/dim of PNG, WebP and xz, and with the extra `codecs` of JPEG XL."""
    weights: Weights = "ema"
    json: bool = False
    """Print one JSON object."""

    @property
    def words(self) -> Words:
        """Model, source and archive; the model is None if one is to be trained."""
        model, source, archive = _words(self.model, self.source, self.archive, "SOURCE and ARCHIVE")
        of_new = self.minutes is not None or self.start_from is not None or self.size is not None
        if model is not None and of_new:
            raise ValueError(
                f"--minutes, --from and --data.size are of a new model: leave out {model}, or begin with it, by"
                f" --from {model}"
            )
        return model, source, archive


@dataclass(frozen=True)
class Decompress:
    """Restore the files of an archive: the same values, names and types.

    Name the model if the archive does not hold it; axial inspect ARCHIVE says which one it needs.

        axial decompress all.axl all.npz
        axial decompress icons.axl restored/
    """

    USAGE: ClassVar[str] = "[MODEL] ARCHIVE OUTPUT [OPTIONS]"

    model: str | Path | None = None
    """The model that compressed the archive, unless this holds it."""
    archive: Annotated[Path | None, REQUIRED] = None
    """The .axl file."""
    output: Path | None = None
    """A new folder; or, of one image, an array, a table or a scan, a new file, such as x.png or x.npz."""
    _: KW_ONLY
    salvage: bool = False
    """Write what intact chunks contain, name what is lost, and end with status 1. Lost values of arrays are 0."""
    weights: Weights = "ema"

    @property
    def words(self) -> Words:
        """Model, archive and output; the model is None if the archive is to hold it."""
        return _words(self.model, self.archive, self.output, "ARCHIVE and OUTPUT")


@dataclass(frozen=True)
class Push:
    """Upload a model to the Hugging Face hub: config.json, model.safetensors and its model card.

    The card is README.md of the folder, or is made from the run. The hub needs a token: hf auth login.

        axial push runs/digits alice/digits --private
        axial push runs/digits alice/digits --dry-run > runs/digits/README.md    (a card to edit, then to push)
    """

    folder: Path
    """Folder of a run or of an exported model."""
    repository: str
    """Repository on the hub, OWNER/NAME; made if missing."""
    _: KW_ONLY
    private: bool = False
    """Make a private repository, and refuse an existing public one. Otherwise the owner's default decides."""
    revision: str | None = None
    """Branch, made if missing. None: main."""
    licence: str | None = None
    """Licence of the weights as the hub calls it, such as apache-2.0. None: the card states none."""
    dry_run: bool = False
    """Upload nothing; print the card, and on stderr what would go where."""


@dataclass(frozen=True)
class ImportOfficial:
    """Convert the authors' TensorFlow checkpoints into model folders, without TensorFlow.

    For example:

        axial import-official logdir -o models/imagenet32
    """

    checkpoint: Path
    """Folder of model.ckpt.index and model.ckpt.data-..., with or without its `checkpoint` file."""
    _: KW_ONLY
    output: Annotated[Path, Parameter(alias="-o")]
    """The model folder to write: new, or empty."""
    raw: bool = False
    """Take the raw weights instead of the EMA weights (averaged)."""
    heads: int = 16
    """Attention heads, which a checkpoint does not record; the published models have 16."""
    channels: int | None = None
    """Channels of a model that stacks its channels as rows, which a checkpoint does not record."""
    verify: bool = False
    """Check the checksum of every tensor, not only that of the index."""


@dataclass(frozen=True)
class Doctor:
    """Say what this machine has, and compare an archive with that of other machines.

    The exit status is 1 if it differs. Put the output into a report of an error.

        axial doctor
    """
