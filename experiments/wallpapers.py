"""Photographs among the wallpapers of Debian 12 and of Budgie, made smaller: they trained the shipped models, too.

    apt-get download lomiri-wallpapers-16.04 lomiri-wallpapers-20.04 mate-backgrounds plasma-workspace-wallpapers
    for package in *.deb; do dpkg -x $package debian; done
    python experiments/wallpapers.py debian wallpapers/
    python experiments/varied_photos.py wallpapers/ varied/ --copies 12
    git clone https://github.com/BuddiesOfBudgie/budgie-backgrounds
    git -C budgie-backgrounds checkout 82067426
    python experiments/wallpapers.py budgie-backgrounds budgie/
    python experiments/varied_photos.py budgie/ varied/ --copies 12

| package | version | photographs | licence, as its copyright file states it |
|---|---|---|---|
| lomiri-wallpapers-16.04 | 20.04.0-2 | 12 | CC-BY-4.0; Bridge, Dragonfly, Wine, free: CC-BY-SA-4.0; seeding: CC0-1.0 |
| lomiri-wallpapers-20.04 | 20.04.0-2 | 1 | CC-BY-SA-4.0 |
| mate-backgrounds | 1.26.0-1 | 12 | GPL-2+ |
| plasma-workspace-wallpapers | 4:5.27.5-2 | 12 | GPL-2+ |
| budgie-backgrounds, its repository | commit 82067426 | 15 | CC0-1.0 |

Blocks of pixels are averaged until no side is longer than 1,000 pixels, so that traces of JPEG go.
"""

from pathlib import Path

from PIL import Image

from axial_transformers.progress import bar
from of_benchmarks import run_command

LONGEST = 1_000
"""Pixels of a side, at most."""
LOMIRI = {
    0: "Bridge_by_Sander_Klootwijk", 1: "Dragonfly_by_Bolly", 2: "Picture_0B_by_freespace",
    3: "Picture_1A_by_freespace", 4: "Wine_by_Jakkub_Mede", 5: "aitzgorri_by_Aitzol_Berasategi",
    7: "free_by_Peter_Nerlich",
    8: "friends_by_Aitzol_Berasategi", 10: "life_by_Aitzol_Berasategi", 11: "picosdeeuropa_by_Aitzol_Berasategi",
    12: "seeding_by_Clements_Engelhardt", 13: "sunset_by_Aitzol_Berasategi", 17: "Kleiber_by_Lukas_Baubkus",
}  # fmt: skip
MATE = {
    39: "Aqua", 40: "Blinds", 41: "Dune", 42: "FreshFlower", 43: "Garden", 44: "GreenMeadow", 45: "LadyBird",
    46: "RainDrops", 47: "Storm", 48: "TwoWings", 49: "Wood", 50: "YellowFlower",
}  # fmt: skip
PLASMA = {
    53: "BytheWater", 57: "ColdRipple", 58: "ColorfulCups", 59: "DarkestHour", 61: "EveningGlow", 62: "FallenLeaf",
    65: "Grey", 69: "Kite", 72: "OneStandsOut", 76: "Path", 79: "Volna", 80: "summer_1am",
}  # fmt: skip
BUDGIE = {
    100: "abstract-spiral", 101: "beacon-street-sunset", 102: "blue-periwinkle", 103: "canyon-wren", 104: "casa-mila",
    105: "extreme-desert-hike", 106: "high-trestle-trail", 107: "lake-sherburne", 108: "oakland-zoo-otters",
    109: "perched-osprey", 110: "piazza-gae-aulenti", 111: "roman-colosseum", 112: "singaporean-cityscape",
    113: "tea-gardens", 114: "the-spices-of-life",
}  # fmt: skip
"""Numbers come first in the names of the files, and order them."""


def budgie_files(repository: Path) -> dict[int, tuple[str, Path]]:
    """Return the name and the file of each photograph, by its number."""
    return {number: (name, repository / "backgrounds" / f"{name}.jpg") for number, name in BUDGIE.items()}


def debian_files(debian: Path) -> dict[int, tuple[str, Path]]:
    """Return the name and the file of each photograph, by its number."""
    backgrounds = debian / "usr" / "share" / "backgrounds"
    found = {number: (name, backgrounds / f"{name}.jpg") for number, name in LOMIRI.items()}
    found |= {number: (name, backgrounds / "mate" / "nature" / f"{name}.jpg") for number, name in MATE.items()}
    for number, name in PLASMA.items():
        images = debian / "usr" / "share" / "wallpapers" / name / "contents" / "images"
        sizes = {"ColorfulCups": "2560x1600", "Volna": "5120x2880"}
        found[number] = name, images / f"{sizes.get(name, '1920x1080')}.jpg"
    return found


def files(source: Path) -> dict[int, tuple[str, Path]]:
    """Return the name and the file of each photograph of a source, by its number."""
    return budgie_files(source) if (source / "backgrounds").is_dir() else debian_files(source)


def averaged(image: Image.Image) -> Image.Image:
    """Return an RGB image whose pixels are means of square blocks."""
    image = image.convert("RGB")
    side = -(-max(image.size) // LONGEST)
    width, height = (size // side for size in image.size)
    return image.crop((0, 0, width * side, height * side)).reduce(side)


def main(source: Path, out: Path) -> None:
    """Write the photographs as PNG files.

    Args:
        source: the folder of the unpacked packages, or the repository of Budgie's backgrounds.
        out: a new folder.
    """
    out.mkdir(parents=True)
    photographs = files(source)
    for number, (name, path) in bar("photographs")(photographs.items()):
        with Image.open(path) as image:
            averaged(image).save(out / f"{number:02}_{name}.png")
    print(f"{len(photographs)} photographs in {out}")


if __name__ == "__main__":
    run_command(main)
