"""Where pictures come from: Debian's fonts, random strokes, or a folder of images.

Fonts give real images with as many classes as ImageNet-21K that are free for everyone: a class is a Han character, a
style is a font, and whole families of fonts are held out, so that training and test pictures differ in style, as
photographs do. Strokes are for a machine without the fonts. With ImageNet-21K in a folder, the same command runs the
real thing.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt

from manyclass.errors import FileError

SIDE = 64  # pixels; a picture is SIDE × SIDE, one channel

Pixels = npt.NDArray[np.uint8]
Picture = tuple[Pixels, int, int]  # (SIDE, SIDE), class, style


@dataclass(frozen=True)
class Collection:
    """What a source offers before anything is drawn."""

    source: str
    class_names: list[str]
    style_names: list[str]
    held_out: list[int]
    at_most: int  # pictures
    pictures: Callable[[], Iterable[Picture]]


# Fonts

# Debian package → the font files of it that are drawn from.
PACKAGES = {
    "fonts-noto-cjk": ("NotoSansCJK-Bold.ttc", "NotoSansCJK-Regular.ttc", "NotoSerifCJK-Bold.ttc",
                       "NotoSerifCJK-Regular.ttc"),
    "fonts-cns11643-kai": ("TW-Kai-98_1.ttf", "TW-Kai-Ext-B-98_1.ttf", "TW-Kai-Plus-98_1.ttf"),
    "fonts-cns11643-sung": ("TW-Sung-98_1.ttf", "TW-Sung-Ext-B-98_1.ttf", "TW-Sung-Plus-98_1.ttf"),
    "fonts-hanazono": ("HanaMinA.ttf", "HanaMinB.ttf"),
    "fonts-babelstone-han": ("BabelStoneHan.ttf",),
    "fonts-lxgw-wenkai": ("LXGWWenKai-Bold.ttf", "LXGWWenKai-Light.ttf", "LXGWWenKai-Regular.ttf",
                          "LXGWWenKaiMono-Bold.ttf", "LXGWWenKaiMono-Light.ttf", "LXGWWenKaiMono-Regular.ttf"),
    "fonts-ipamj-mincho": ("ipamjm.ttf",),
    "fonts-arphic-ukai": ("ukai.ttc",),
    "fonts-arphic-uming": ("uming.ttc",),
    "fonts-wqy-zenhei": ("wqy-zenhei.ttc",),
    "fonts-wqy-microhei": ("wqy-microhei.ttc",),
    "fonts-droid-fallback": ("DroidSansFallbackFull.ttf",),
    "fonts-horai-umefont": tuple(f"ume-{kind}.ttf" for kind in (
        "hgo4", "hgo5", "pgc4", "pgc5", "pgo4", "pgo5", "pgs4", "pgs5", "pmo3", "pms3", "tgc4", "tgc5", "tgo4", "tgo5",
        "tgs4", "tgs5", "tmo3", "tms3", "ugo4", "ugo5")),
    "fonts-klee": ("KleeOne-Regular.ttf", "KleeOne-SemiBold.ttf"),
}  # fmt: skip
HELD_OUT = ("fonts-cns11643-sung", "fonts-lxgw-wenkai")  # one print and one brush style, both with all basic characters
HELD_OUT_DRAWN = ("TW-Sung-98_1.ttf", "LXGWWenKai-Regular.ttf")  # their other weights would repeat the same shapes
LEAST_FONTS = 8  # a class is a character that at least so many font files have
BASIC = range(0x4E00, 0xA000)  # Unicode's basic block of Han characters
ROOTS = ("/usr/share/fonts", "/usr/local/share/fonts", "~/.local/share/fonts", "~/.fonts")
INK_SIZE = 52  # font size: leaves a margin that rotation and shift may use


def installed_fonts() -> dict[str, Path]:
    """Return file name → path of every font of the table that this machine has."""
    wanted = {name for names in PACKAGES.values() for name in names}
    found: dict[str, Path] = {}
    for root in ROOTS:
        for path in sorted(Path(root).expanduser().rglob("*.tt[fc]")):
            if path.name in wanted:
                found.setdefault(path.name, path)
    return found


def missing_packages() -> list[str]:
    """Return the Debian packages that would have to be installed for this data set."""
    have = installed_fonts()
    return [package for package, names in PACKAGES.items() if any(name not in have for name in names)]


def from_fonts() -> Collection:
    """Return what there is to draw; FileError with the install line where fonts are missing."""
    if missing := missing_packages():
        raise FileError(
            f"fonts of {len(missing)} packages are missing; get them with `apt-get install {' '.join(missing)}`, "
            "give --data a folder of images by class, or try --quick, which draws its own characters"
        )
    paths = installed_fonts()
    names = [name for fonts in PACKAGES.values() for name in fonts]
    coverage = {name: _characters(paths[name]) for name in names}
    counted = Counter(character for characters in coverage.values() for character in characters)
    classes = sorted(character for character, fonts in counted.items() if fonts >= LEAST_FONTS)
    held_out = {name for package in HELD_OUT for name in PACKAGES[package]}
    drawn = [name for name in names if name not in held_out or name in HELD_OUT_DRAWN]

    def pictures() -> Iterator[Picture]:
        seen: set[tuple[int, bytes]] = set()  # several files hold the same shapes in other widths
        for style, name in enumerate(drawn):
            for label, pixels in _draw_font(paths[name], classes, coverage[name]):
                shape = label, blake2b(pixels.tobytes(), digest_size=8).digest()
                if shape not in seen:
                    seen.add(shape)
                    yield pixels, label, style

    return Collection(
        source="glyphs",
        class_names=[chr(character) for character in classes],
        style_names=[Path(name).stem for name in drawn],
        held_out=[style for style, name in enumerate(drawn) if name in held_out],
        at_most=sum(len(coverage[name] & set(classes)) for name in drawn),
        pictures=pictures,
    )


def _characters(path: Path) -> set[int]:
    """Return the Han characters that a font file has a glyph for."""
    from fontTools.ttLib import TTFont

    logging.getLogger("fontTools").setLevel(logging.ERROR)  # it complains of names of glyphs, which nobody asks for
    with TTFont(path, fontNumber=0, lazy=True) as font:
        known = font.getBestCmap()
    return {code for code in BASIC if code in known}


def _draw_font(path: Path, classes: list[int], covered: set[int]) -> Iterator[tuple[int, Pixels]]:
    """Yield (class, picture) for every class of the font, its box in the middle, without blank and broken glyphs."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.truetype(str(path), INK_SIZE, index=0)
    for label, character in enumerate(classes):
        if character not in covered:
            continue
        try:
            left, top, right, bottom = font.getbbox(chr(character))
        except OSError:  # some fonts have glyphs whose hinting program FreeType refuses to run
            continue
        picture = Image.new("L", (SIDE, SIDE))
        corner = ((SIDE - left - right) / 2, (SIDE - top - bottom) / 2)
        ImageDraw.Draw(picture).text(corner, chr(character), font=font, fill=255)
        pixels = np.asarray(picture, np.uint8)
        if pixels.any():
            yield label, pixels


# Strokes

STROKES = 6
PENS, HELD_OUT_PENS = 12, 2
GRID = 5  # strokes start and end near the points of a grid, as those of Han characters do


def from_strokes(classes: int, seed: int) -> Collection:
    """Return characters made on the spot; the same seed draws the same ones."""
    return Collection(
        source="strokes",
        class_names=[f"character {number}" for number in range(classes)],
        style_names=[f"pen {number}" for number in range(PENS)],
        held_out=list(range(PENS - HELD_OUT_PENS, PENS)),
        at_most=classes * PENS,
        pictures=partial(_draw_strokes, classes, seed),
    )


def _draw_strokes(classes: int, seed: int) -> Iterator[Picture]:
    from PIL import Image, ImageDraw

    random = np.random.default_rng(seed)
    corners = random.integers(0, GRID, (classes, STROKES, 2, 2)) / (GRID - 1) - 0.5  # x, y of both ends
    for style in range(PENS):
        pen = np.random.default_rng((seed, style))
        width = int(pen.integers(2, 6))
        lean = np.eye(2) + pen.normal(0, 0.08, (2, 2))
        bend = pen.normal(0, 0.05, (STROKES, 2, 2))  # how this hand draws the first, second, … stroke
        for label in range(classes):
            ends = (corners[label] + bend) @ lean * 0.75 + pen.normal(0, 0.015, (STROKES, 2, 2))
            picture = Image.new("L", (SIDE, SIDE))
            draw = ImageDraw.Draw(picture)
            for start, end in _pixels(ends):
                draw.line([tuple(start), tuple(end)], fill=255, width=width)
            yield np.asarray(picture, np.uint8), label, style


def _pixels(ends: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return (ends + 0.5) * (SIDE - 1)


# A folder of images

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"}
SPLITS = ("train", "test")


def from_folder(folder: Path) -> Collection:
    """Return the pictures below a folder; their classes are the names of the folders they lie in.

    Expected: DIR/train/CLASS/* and DIR/test/CLASS/*, or DIR/CLASS/*, of which every second picture is held out: the
    paper halves its data too.
    """
    if not folder.is_dir():
        raise FileError(f"--data {folder} is not a folder; give one with a folder of images for every class")
    split = all((folder / name).is_dir() for name in SPLITS)
    roots = [folder / name for name in SPLITS] if split else [folder]
    names = sorted({path.name for root in roots for path in root.iterdir() if path.is_dir()})
    files = [(path, label, part) for part, root in enumerate(roots) for label, name in enumerate(names)
             for path in sorted((root / name).glob("*")) if path.suffix.lower() in SUFFIXES]  # fmt: skip
    if not files:
        raise FileError(f"--data {folder} holds no images; expected {folder}/CLASS/picture.jpg, or train/ and test/")
    if not split:
        files = [(path, label, number % 2) for number, (path, label, _) in enumerate(files)]

    def pictures() -> Iterator[Picture]:
        for path, label, part in files:
            yield _read_picture(path), label, part

    return Collection("folder", names, list(SPLITS), held_out=[1], at_most=len(files), pictures=pictures)


def _read_picture(path: Path) -> Pixels:
    """Return one picture in grey: its shorter side scaled to SIDE, the middle cut out."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(path) as picture:
            return np.asarray(ImageOps.fit(picture.convert("L"), (SIDE, SIDE)), np.uint8)
    except (OSError, UnidentifiedImageError) as problem:
        raise FileError(f"{path} cannot be read as an image ({problem}); repair or remove it") from problem
