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
        axial evaluate runs/photos other_photos/ --data.fit crop --data.size 32
    """

    _: KW_ONLY
    labels: bool = False
    """Condition a class-conditional model on the labels."""
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
    NAME.mp4 or .gif: a grid that plays; .mkv: lossless. Only images and movies are replaced."""
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
    """An image, white where known; or an .npy file of booleans per position (and channel), true where known."""
    approximate: bool = False
    """Allow any mask. Earlier values then do not depend on the known ones after them."""
    examples: Positive = 8
    """Number of examples to complete, evenly spaced over the source."""
    only: tuple[str, ...] | None = None
    """Complete these examples instead: positions from 0, or names, such as --only 3 17."""
    count: Positive = 4
    """Completions of each."""
    output: Path = Path("completions.png")
    """NAME.png: known part, completions and original side by side. Other files of axial sample: the completions."""


@dataclass(frozen=True, kw_only=True)
class Studio(OfModel):
    """Look at a model in the browser: samples, and completions and bits of your own files.

    Only this machine can open the page. Ctrl-C ends it.

        axial studio runs/photos --data.fit crop --port 8080
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
    """Compress images, videos, an array or a scan into one file, losslessly.

    With --fit, a model is trained on the source itself. With --fit or --embed, the file holds its model, and is all
    that decompressing needs. Otherwise decompressing needs the same model.

        axial compress photos/ photos.axl --fit 60
        axial compress runs/fashion_mnist fashion_mnist.npz all.axl --embed
        axial compress runs/head head.nii.gz head.axl
    """

    USAGE: ClassVar[str] = "[MODEL] SOURCE ARCHIVE [OPTIONS]"

    model: str | Path
    """Folder of a run or of an exported model, or a hub id. Leave it out with --fit."""
    source: Path
    """An image, a video, a folder of them, or an .npz or .npy file with one array; or a scan: NIfTI, DICOM, TIFF, HDF5
    or Zarr. Videos come back as lossless .mkv files without sound. Other files of a folder are stored as they are."""
    archive: Path | None = None
    """The file to write, NAME.axl."""
    _: KW_ONLY
    fit: float | None = None
    """Train a small model of the source for so many minutes, and store it, too. Ctrl-C ends the training early; the
    same command goes on with it, from the folder ARCHIVE.fit."""
    start_from: Annotated[str | None, Parameter(name="--from")] = None
    """Begin with the weights of this model in place of random ones, with --fit."""
    size: Annotated[tuple[int, ...] | None, Parameter(name="--data.size")] = None
    """With --fit: the side of tiles of images, or the sides of blocks of one array or scan, such as 8 8 128."""
    embed: bool = False
    """Store the model, too. Its weights are rounded so that weights and data together take few bytes."""
    force: bool = False
    """Replace the archive, but never a file of the source. Write one that is larger than the source, or than its
    values by zlib; otherwise the command ends with status 1."""
    other_sizes: Literal["auto", "store", "tile"] = "auto"
    """Images of another size than the model's: store the files as they are, or cut them into tiles. auto: tile if the
    run was trained on tiles. Scans are always cut."""
    drop_header: bool = False
    """Keep values, type and geometry of a scan, but no other fields of its header, such as patient data and dates."""
    verify: bool = True
    """Decompress and compare before the file appears."""
    compare: bool = False
    """Also print bytes and bits/dim of PNG, WebP and xz, and with the extra `codecs` of JPEG XL."""
    weights: Weights = "ema"
    json: bool = False
    """Print one JSON object."""

    @property
    def words(self) -> tuple[str | Path | None, Path, Path]:
        """Model, source and archive; the model is None with --fit."""
        if self.fit is None and self.archive is None:
            raise ValueError("name MODEL, SOURCE and ARCHIVE; or SOURCE and ARCHIVE with --fit MINUTES")
        if self.fit is None and (self.start_from is not None or self.size is not None):
            raise ValueError("--from and --data.size are of a model that --fit MINUTES trains: give that, too")
        if self.fit is not None and self.archive is not None:
            raise ValueError(
                f"--fit trains a model of its own: leave out {self.model}, or begin with it: --from {self.model}"
            )
        if self.archive is None:
            return None, Path(self.model), self.source
        return self.model, self.source, self.archive


@dataclass(frozen=True)
class Decompress:
    """Restore the files of an archive: the same pixels, names and modes.

    Name the model if the archive does not hold it; axial inspect ARCHIVE says which one it needs.

        axial decompress all.axl all.npz
        axial decompress runs/photos photos.axl restored/
        axial decompress runs/photos photos.axl cat.png --only cat.png
    """

    USAGE: ClassVar[str] = "[MODEL] ARCHIVE OUTPUT [OPTIONS]"

    model: str | Path
    """The model that compressed the archive. Leave it out if the archive holds its model."""
    archive: Path
    """The .axl file."""
    output: Path | None = None
    """A new folder; for one image, video or scan alone also a new file such as x.png; for an array, a new .npz or .npy
    file."""
    _: KW_ONLY
    salvage: bool = False
    """Write what intact chunks contain, and name what is lost."""
    only: str | None = None
    """Restore only the image or video of this name, or the example of this number. A scan is restored whole."""
    most_values: int | None = None
    """Refuse an archive of more values (pixels x channels) than this, to bound the time."""
    weights: Weights = "ema"

    @property
    def words(self) -> tuple[str | Path | None, Path, Path]:
        """Model, archive and output; the model is None if two words are given."""
        if self.output is None:
            return None, Path(self.model), self.archive
        return self.model, self.archive, self.output


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
