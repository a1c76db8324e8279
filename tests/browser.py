"""A page as a real browser shows it: what it complains about, what it loads, what has a size."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Page, sync_playwright

from experiments.frame.needs import browser

PATIENCE = 120_000  # ms; a busy machine takes its time
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--no-first-run",
)


@dataclass
class Opened:
    """An open page and all it said and asked for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@contextmanager
def opened(path: Path, width: int = 1280, height: int = 900, dark: bool = False) -> Iterator[Opened]:
    """Open a file in Chromium without a display; skip the test where there is none."""
    chromium = browser()
    if chromium is None:
        pytest.skip("no browser here; install one with: apt-get install chromium")
    with sync_playwright() as playwright:
        program = playwright.chromium.launch(executable_path=chromium, args=list(ARGUMENTS), timeout=PATIENCE)
        try:
            scheme = "dark" if dark else "light"
            page = program.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            seen = Opened(page)
            page.on("console", lambda message: seen.complaints.append(message.text))
            page.on("pageerror", lambda error: seen.complaints.append(str(error)))
            page.on("requestfailed", lambda request: seen.complaints.append(f"failed: {request.url}"))
            page.on("request", lambda request: seen.requests.append(request.url))
            page.goto(path.resolve().as_uri(), wait_until="load", timeout=PATIENCE)
            yield seen
        finally:
            program.close()


def assert_page_is_whole(path: Path, figures: set[str], screenshots: Path | None = None) -> None:
    """Fail unless a page has these figures with a size, complains of nothing, loads nothing and fits a phone."""
    for name, width in (("desk", 1280), ("phone", 390)):
        with opened(path, width) as seen:
            drawn = seen.page.locator("figure svg")
            assert {seen.page.locator("figure").nth(n).get_attribute("data-figure") for n in range(drawn.count())} == (
                figures
            )
            for number in range(drawn.count()):
                box = drawn.nth(number).bounding_box()
                assert box is not None
                assert box["width"] > 200
                assert box["height"] > 100
            inner, scrolled = seen.page.evaluate("[window.innerWidth, document.documentElement.scrollWidth]")
            assert scrolled <= inner, f"the page scrolls sideways at {width} pixels"
            assert len(set(ids := seen.page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)"))) == (
                len(ids)
            )
            if screenshots is not None:
                seen.page.screenshot(path=screenshots / f"{path.parent.name}-{name}.png", full_page=True)
            assert not seen.complaints
            assert all(url.startswith(("file:", "data:")) for url in seen.requests)
