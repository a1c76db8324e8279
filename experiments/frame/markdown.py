"""A table of a page as Markdown, for README and docs."""

from experiments.frame.page import Table

RULES = {"l": "---", "c": ":---:", "r": "---:"}


def markdown_table(table: Table) -> str:
    """Return the rows under the columns; emphasised rows in bold, groups and caption left out."""
    rows = [
        [f"**{cell}**" if number in table.emphasised and str(cell) else str(cell) for cell in row]
        for number, row in enumerate(table.rows)
    ]
    lines = [list(table.columns), [RULES[letter] for letter in table.alignment], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
