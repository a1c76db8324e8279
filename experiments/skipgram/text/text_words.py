"""Text as words: any file, packed or not, or folders of them, read line by line.

A word is letters with an apostrophe between them at most, or digits, in lower case. A line `=<number><tab><title>`, as
texts made of Wikipedia have it, opens an article and is none of its words. Long lines are broken: some texts are one.
"""

import lzma
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from experiments.datasets.opened_text import opened_text
from experiments.datasets.wikipedia import TEST_FILES
from manyclass.errors import CorruptFileError, FileError

SUFFIXES = (".txt", ".gz", ".xz")
LONGEST = 1000  # words of a line; gensim leaves out what is beyond ten thousand
TITLE = re.compile(r"=\d+\t")
ALREADY_WORDS = re.compile(r"[a-z0-9' ]*\n?")  # nothing to be done: such a line is only split
WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?|\d+")


def text_files(paths: Iterable[Path]) -> list[Path]:
    """Return the files to read; of a folder those with a text's ending, but not other editions, called ident-…."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(file for file in path.iterdir() if file.name.endswith(SUFFIXES) and file.is_file())
            found = [file for file in inside if not file.name.startswith(TEST_FILES)]
            if not found:
                raise FileError(f"{path} has no file that ends in {', '.join(SUFFIXES)}; name a folder of texts")
            files += found
        elif path.is_file():
            files.append(path)
        else:
            raise FileError(f"{path} does not exist; name a text file or a folder of them")
    if not files:
        raise FileError("no text was named; give a file or a folder")
    return files


def lines_of_words(file: Path) -> Iterator[list[str] | None]:
    """Yield the words of each line that has any; None where an article begins. Broken files are refused by name."""
    try:
        with opened_text(file) as lines:
            for line in lines:
                if line[0] == "=" and TITLE.match(line):
                    yield None
                else:
                    words = words_of(line)
                    yield from (words[begin : begin + LONGEST] for begin in range(0, len(words), LONGEST))
    except UnicodeDecodeError as error:
        raise CorruptFileError(f"{file} is not UTF-8 text ({error.reason} at byte {error.start}); convert it") from None
    except (lzma.LZMAError, zlib.error, EOFError) as error:
        raise CorruptFileError(
            f"{file} cannot be unpacked ({error}); it is damaged or cut short: get it anew"
        ) from None
    except OSError as error:
        raise CorruptFileError(f"{file} cannot be read ({error}); is it what its ending says?") from None


def words_of(line: str) -> list[str]:
    """Return the words of one line."""
    return line.split() if ALREADY_WORDS.fullmatch(line) else WORD.findall(line.lower())
