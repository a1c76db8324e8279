"""What tells trained heads apart, in records and in words."""

Series = tuple[str, int | None, str | None]  # head, candidates, rule
RULES = {  # how a WTA head picks its candidates, in the order they are shown
    "paper": "the paper's literal rule",
    "own": "own candidates",
    "shared": "shared candidates (default)",
}


def name_of(series: Series) -> str:
    """Return how a head is called on the page."""
    head, candidates, rule = series
    if head != "wta":
        return f"{head} softmax"
    return f"WTA, {RULES[rule or 'shared']}" + (f", K = {candidates:,}" if candidates else "")
