"""Han characters drawn from Debian's fonts: real images with as many classes as ImageNet-21K, free for everyone.

Class = character, style = font. Whole families of fonts are held out, so that training and test pictures differ in
style, as photographs do.
"""

import logging
from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import numpy as np

from experiments.imagenet21k.images import SIDE, Collection, Picture, Pixels
from manyclass.errors import FileError

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


def collect() -> Collection:
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
            for label, pixels in _draw(paths[name], classes, coverage[name]):
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


def _draw(path: Path, classes: list[int], covered: set[int]) -> Iterator[tuple[int, Pixels]]:
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
