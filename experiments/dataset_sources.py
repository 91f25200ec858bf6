"""Public sources of the data sets that the documentation quotes: addresses, checksums (MD5 or SHA-256), sizes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from axial_transformers.data import DataConfig, Split


@dataclass(frozen=True, kw_only=True)
class Quoted:
    """Examples as `axial_transformers.data.load` reads them from a data set, and their fingerprint."""

    source: str
    """Path within the folder of the data sets."""
    options: DataConfig
    split: Split = "all"
    fingerprint: str | None = None
    """None where none has been published."""


def _within(base: str, checksums: Mapping[str, str]) -> Mapping[str, str]:
    return {base + name: checksum for name, checksum in checksums.items()}


_GITHUB = "https://raw.githubusercontent.com"
_FASHION_MNIST = f"{_GITHUB}/zalandoresearch/fashion-mnist/b2617bb6d3ffa2e429640350f613e3291e10b141/data/fashion/"
_SAMPLE_VIDEOS = f"{_GITHUB}/intel-iot-devkit/sample-videos/57978890822836f2b4743852f04f62fc511757e4/"
_GB82 = f"{_GITHUB}/gianni-rosato/gb82-image-set/502f9f94cb73d1ad5c89ce06fe6b100d0a27df8f/png/"

_PHOTOS = {
    "baby": "9d41d594b2e4dcc6de58f56816aa737cf84109444725f5c36b84e6987d2f016c",
    "bulb": "ab3222efef146df66c5e2895118eb0b520889c9cb417afb13b0948427946223c",
    "city": "92950cec34adafe5a2d8ca5c247ec04df1a8de508f602ef683c838e1e2804aa7",
    "dog": "cd3e7fbbd2499ddeef208a97fe3f1f3e8d53f9ae7edc63d492a5003503ad8077",
    "flowers": "3718d228fbc85a2bc6040b83358b51b67ca68e3521337bf18e2e1b43c7c30c72",
    "grass": "b49986dad608edadf1b2071359ac6d18de55751864df407b215ea9bb00a92079",
    "guitar": "24e1cf12a305c4de4881477f9dff26fda9e49c8a312d5a97fa23cdd8cc25d75d",
    "haze": "160eb5004cfa03cdf72c726f24f65d747cf67e932ce7b668e03d8d296b4737a2",
    "house": "68e92e972c8445fccc600723bb883b3511a09d3a2b54a615da53a3b2dcbc27db",
    "mies": "36f36e711d23b81923711510a46027a8e263b2e08828f24cc7cffaebeea81cb5",
    "nyc": "6ec0c4198550338e2707019e032644c3337dec5b21cece5406fed4be369a1790",
    "path": "12cc3e74ca3a4ff2e2fff105dfaa575c361f1028d91fd3a8ea7260631461c768",
    "pixel": "212c7b26c48f67b3aefafeb7403622be45f4831149d4b8644ad4007ee77e51fa",
    "prudential": "4eb79a990611369371d79487e4dbb40ce5c53e08aa3149bcc8e15ebe68c5ab11",
    "rain": "0efb4acbd4e177966da578024a952fe2ace2fb6cf2ca9f21a2c6d8dd6166fa2f",
    "sand": "464e9852a5109144a2437b0fe51a8ce27fc35558443a3603989bb1eeb42699b8",
    "sumac": "9b5246aa6d3c348c895ab01643c17ee5108d469beb4013f79fca8ae96743e5da",
    "sunset": "55b92efdce2a51e9e2a6fb2c1030ff8741ed085597a7fa20aba260aec4889eaa",
    "waves": "fc1c9d77021fb17c7c5b79e9b9520a64ef3f3418cefaf408209ae838ab320b6f",
    "girl": "8f0623b15409d6b4b7c1cfa8950b2b608d0bd1a7eb5f382573dd1d7b30b21bcf",
    "night": "4ce7ff45f98595f3c7d782e2e6abd97bacb88f284ffe170dbe33a25bcca62082",
    "reflect": "d92a2c4ff015ae41e2cb2efd28677ab21647073cc7e8b4f15218862e931731d8",
}
TEST_PHOTOS = ("girl", "night", "reflect")

SOURCES = {
    # checksums: README.md of the repository
    "fashion_mnist": _within(
        _FASHION_MNIST,
        {
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
    # checksums: torchvision.datasets.MNIST
    "mnist": _within(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        {
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        },
    ),
    "clips64": _within(
        _SAMPLE_VIDEOS,
        {
            "bottle-detection.mp4": "d52ba94aedf8a923c342fe9ea1d2bd85f712c4cc0f49a6de1bac43eebe3a48ff",
            "car-detection.mp4": "d31e0ebf194cc16e50eea784e7c3b0b1bb7976a4fb9b3fec26cb92a6704cca34",
            "one-by-one-person-detection.mp4": "a5964aa259099a482a8b360ffc2c57b5a30f84d5919236a4dad01f8e929ac07c",
        },
    ),
    "photos": _within(_GB82, {f"{name}-lossless.png": checksum for name, checksum in _PHOTOS.items()}),
    # size and checksum: url_checksums of TensorFlow Datasets, bair_robot_pushing_small
    "bair": {
        "http://rail.eecs.berkeley.edu/datasets/bair_robot_pushing_dataset_v0.tar": (
            "c6f8d164ab2be07174ef597e3e070d7466f3142caddc467b6af119b9458cd9cd"
        )
    },
}
"""Addresses of the files that a data set is built from, with their checksums."""

IMAGENET = {
    "train_32x32.tar": "244a323d48f8d72f65ad8b54658c01fed68d2d7bdc77ccb43da58c11e94224e5",
    "valid_32x32.tar": "862e559462b24cf736212a19f6b0d47b55c2dc8ebdaa95ccecfe71260124c8f7",
    "train_64x64.tar": "e2a2c1947a748d0d256e98e6d82800d855441dc9e4de2e71a773f1324c4524d7",
    "valid_64x64.tar": "eeac03ec4f585baf871d2b4cb9c974bfe345e74878a74e5820fe6eb1041629cd",
}
"""Old version of downsampled ImageNet (49,999 validation images); checksums: url_checksums of TensorFlow Datasets."""

_TILES = DataConfig(size=32, cut="tiles", mode="rgb")
_CLIPS = DataConfig(size=32, cut="crop")

QUOTED = {
    "fashion_mnist": [
        Quoted(
            source="fashion_mnist_train.npz",
            options=DataConfig(),
            split="train",
            fingerprint="7a572e2bb7ed6ffdfdfa058a9129fa4dd668ffcf06a7ac4e8b248388115eeb09",
        ),
        Quoted(
            source="fashion_mnist_test.npz",
            options=DataConfig(),
            fingerprint="9c2df9a336536009c43a201c5624424c933a1003b3f2696dbf83c0719cb1f425",
        ),
    ],
    "mnist": [
        Quoted(
            source="mnist_t10k.npz",
            options=DataConfig(),
            fingerprint="97390c055f8e6f16316bb1845ffe17fbea6568208f2db8d4155cbb9c086f80b4",
        )
    ],
    "clips64": [
        Quoted(
            source="clips64_train.npz",
            options=_CLIPS,
            split="train",
            fingerprint="7a7763151010b51574a66055a880b53d8761ca85706735ae39da282a5fb86c91",
        ),
        Quoted(
            source="clips64_test.npz",
            options=_CLIPS,
            fingerprint="48daa09d98cb6e6305c7b63e9652e53f09a32b9db5b6b5e6dee90a21d7c739d8",
        ),
    ],
    "photos": [
        Quoted(
            source="photos/train",
            options=_TILES,
            fingerprint="2c4bdf5b3e730943ce2a0e9de0a039d1bb45a02da5a327b4c3f2ad5f622d4375",
        ),
        Quoted(
            source="photos/test",
            options=_TILES,
            fingerprint="0896467cf42276bd4ddcdc36ca5c0c4e5be90682ca6b56715b808049d6c27e56",
        ),
        Quoted(
            source="photos/test",
            options=replace(_TILES, mode="gray"),
            fingerprint="00074bda4c6cb267074eda37748b386171c40f9f9b7518355b485ea8922e275a",
        ),
    ],
    "bair": [Quoted(source="bair", options=DataConfig(frames=16), split="test")],
}
