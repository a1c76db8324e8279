"""How numbers are said on a page, the same everywhere; what is absent is a dash."""

from manyclass.training.progress import spoken_time

__all__ = ["ABSENT", "duration", "number", "percent", "times", "whole"]

ABSENT = "–"


def number(value: float | None) -> str:
    """Return three digits that matter: 0.0123, 1.23, 12.3, 1,230."""
    if value is None:
        return ABSENT
    return (
        f"{value:,.0f}"
        if abs(value) >= 99.95
        else f"{value:#.3g}"
        if abs(value) >= 1e-3 or not value
        else f"{value:.1e}"
    )


def percent(value: float | None) -> str:
    """Return a share in percent with one digit, 100% only where nothing is lost."""
    if value is None:
        return ABSENT
    said = f"{value:.1%}"
    return "99.9%" if said == "100.0%" and value < 1 else said


def times(value: float | None) -> str:
    """Return a speed-up: 2.7×, 57×."""
    if value is None:
        return ABSENT
    return f"{value:,.0f}×" if value >= 9.95 else f"{value:.1f}×"


def whole(value: float | None) -> str:
    """Return a count with thousands set off."""
    return ABSENT if value is None else f"{value:,.0f}"


def duration(seconds: float | None) -> str:
    """Return a time as one says it."""
    return ABSENT if seconds is None else spoken_time(seconds)
