"""Photographs among the wallpapers of four collections, made smaller: they trained the shipped models, too.

    apt-get download lomiri-wallpapers-16.04 lomiri-wallpapers-20.04 mate-backgrounds plasma-workspace-wallpapers
    for package in *.deb; do dpkg -x $package debian; done
    git clone https://github.com/BuddiesOfBudgie/budgie-backgrounds budgie
    git -C budgie checkout 82067426
    git clone https://github.com/elementary/wallpapers elementary
    git -C elementary checkout 47b25c2
    git clone https://github.com/pop-os/wallpapers pop
    git -C pop checkout 03a25a1
    python experiments/wallpapers.py debian debian/ photos_debian/    # in the same way: budgie, elementary, pop

What these folders become stands in `varied_photos.py`.

| package or repository | version | photographs | licence, as its copyright file or README states it |
|---|---|---|---|
| lomiri-wallpapers-16.04 | 20.04.0-2 | 12 | CC-BY-4.0; Bridge, Dragonfly, Wine, free: CC-BY-SA-4.0; seeding: CC0-1.0 |
| lomiri-wallpapers-20.04 | 20.04.0-2 | 1 | CC-BY-SA-4.0 |
| mate-backgrounds | 1.26.0-1 | 12 | GPL-2+ |
| plasma-workspace-wallpapers | 4:5.27.5-2 | 12 | GPL-2+ |
| budgie-backgrounds | commit 82067426 | 15 | CC0-1.0 |
| elementary's wallpapers | commit 47b25c2 | 7 | public domain (commit dede845 of its branch deb-packaging) |
| Pop!_OS's wallpapers | commit 03a25a1 | 7 | public domain |

Blocks of pixels are averaged until no side is longer than 1,000 pixels, so that traces of JPEG go.
"""

from pathlib import Path
from typing import Literal

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
ELEMENTARY = {
    120: "Ashim DSilva", 121: "Carmine De Fazio", 122: "Jonas Nilsson Lee", 123: "Pablo Garcia Saldana",
    124: "Rob Bye", 125: "Ryan Schroeder", 126: "Sunset by the Pier",
}  # fmt: skip
POP = {
    130: "ahmadreza-sajadi-10140-edit", 131: "jad-limcaco-183877", 132: "jared-evans-119758", 133: "kait-herzog-8242",
    134: "ng-32703", 135: "samuel-zeller-337041", 136: "sean-afnan-244576",
}  # fmt: skip
"""Numbers come first in the names of the files, and order them."""
Collection = Literal["debian", "budgie", "elementary", "pop"]


def files(collection: Collection, source: Path) -> dict[int, tuple[str, Path]]:
    """Return the name and the file of each photograph of a collection, by its number."""
    if collection == "budgie":
        return {number: (name, source / "backgrounds" / f"{name}.jpg") for number, name in BUDGIE.items()}
    if collection == "elementary":
        return {number: (name, source / "backgrounds" / f"{name}.jpg") for number, name in ELEMENTARY.items()}
    if collection == "pop":
        return {number: (name, source / "original" / f"{name}.jpg") for number, name in POP.items()}
    backgrounds = source / "usr" / "share" / "backgrounds"
    of_debian = {number: (name, backgrounds / f"{name}.jpg") for number, name in LOMIRI.items()}
    of_debian |= {number: (name, backgrounds / "mate" / "nature" / f"{name}.jpg") for number, name in MATE.items()}
    for number, name in PLASMA.items():
        images = source / "usr" / "share" / "wallpapers" / name / "contents" / "images"
        sizes = {"ColorfulCups": "2560x1600", "Volna": "5120x2880"}
        of_debian[number] = name, images / f"{sizes.get(name, '1920x1080')}.jpg"
    return of_debian


def averaged(image: Image.Image) -> Image.Image:
    """Return an RGB image whose pixels are means of square blocks."""
    image = image.convert("RGB")
    side = -(-max(image.size) // LONGEST)
    width, height = (size // side for size in image.size)
    return image.crop((0, 0, width * side, height * side)).reduce(side)


def main(collection: Collection, source: Path, out: Path) -> None:
    """Write the photographs as PNG files.

    Args:
        collection: whose photographs.
        source: the folder of the unpacked packages, or the repository.
        out: a new folder.
    """
    out.mkdir(parents=True)
    photographs = files(collection, source)
    for number, (name, path) in bar("photographs")(photographs.items()):
        with Image.open(path) as image:
            averaged(image).save(out / f"{number:02}_{name.replace(' ', '_')}.png")
    print(f"{len(photographs)} photographs in {out}")


if __name__ == "__main__":
    run_command(main)
