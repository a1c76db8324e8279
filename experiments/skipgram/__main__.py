"""The command `python -m experiments.skipgram`: asks saved word vectors for nearest words and analogies."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

try:
    import typer
except ModuleNotFoundError:
    sys.exit("skipgram: the command needs typer, which is not installed; pip install '.[experiments]'")

from experiments.skipgram.vectors.lookup import Answer, Lookup
from manyclass.errors import ManyclassError

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
Vectors = Annotated[Path, typer.Argument(help="a file in word2vec's text or binary format", show_default=False)]
Best = Annotated[int, typer.Option("-k", min=1, help="words to show")]


@app.command()
def nearest(vectors: Vectors, word: Annotated[str, typer.Argument(show_default=False)], k: Best = 10) -> None:
    """Print the words whose vectors are nearest to a word's."""
    show(vectors, lambda lookup: lookup.nearest(word, k))


@app.command()
def analogy(
    vectors: Vectors,
    a: Annotated[str, typer.Argument(show_default=False)],
    b: Annotated[str, typer.Argument(show_default=False)],
    c: Annotated[str, typer.Argument(show_default=False)],
    k: Best = 10,
) -> None:
    """Print what is to C as B is to A."""
    show(vectors, lambda lookup: lookup.analogy(a, b, c, k))


def show(path: Path, ask: Callable[[Lookup], Answer]) -> None:
    """Print words with their cosines, and the time of the search."""
    try:
        answer = ask(Lookup.load(path))
    except ManyclassError as error:
        typer.echo(f"skipgram: {error}", err=True)
        raise typer.Exit(2) from None
    for word, cosine in answer.words:
        typer.echo(f"{cosine:6.3f}  {word}")
    typer.echo(f"{answer.milliseconds:.2f} ms in the index")


if __name__ == "__main__":
    app(prog_name="python -m experiments.skipgram")
