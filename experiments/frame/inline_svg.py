"""How a drawing becomes a part of a page."""

import re
from html import escape

from experiments.frame.drawing import INK, QUIET, RULE
from manyclass.errors import InputError

# The furniture of a figure takes the page's colours, so that figures read well in the dark; lines keep their own.
PAGE_COLOURS = {INK: "--ink", QUIET: "--quiet", RULE: "--rule", "#ffffff": "--figure"}


def inline_svg(svg: str, name: str, alt: str) -> str:
    """Return the `<svg>` element of a file that matplotlib wrote, fit to stand in a page beside others.

    Its names get a prefix, its style applies to itself alone, its size follows the page, and `alt` describes it.
    """
    start = svg.find("<svg")
    if start < 0:
        raise InputError(f"figure {name!r} is not a drawing in SVG: {svg!r:.60}; pass a file of drawing.save")
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", svg[start:].strip(), flags=re.DOTALL)
    body = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', body)
    body = re.sub(r'(url\(|href=")#', rf"\1#{name}-", body)
    body = re.sub(r"(<style[^>]*>)\s*\*", rf"\1#{name} *", body)
    for colour, variable in PAGE_COLOURS.items():
        body = body.replace(colour, f"var({variable})")
    opening, rest = body.split(">", 1)
    opening = re.sub(r'\s(width|height|version)="[^"]*"', "", opening)
    return f'{opening} id="{name}" role="img" aria-label="{escape(alt)}">{rest}'
