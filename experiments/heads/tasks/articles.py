"""Identification of articles: which one a window of consecutive words comes from, tested on other editions of them."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor, nn

from experiments.datasets.wikipedia import Articles, Ids, Wikipedia, wikipedia
from experiments.heads.tasks.task import Examples, Task, embedded_bag

FEATURES, WINDOW = 128, 48
COMMON = 256  # words that are read over: nearly half of all text, and the same in every article
OF_EDITION = 2000  # examples of each edition by which the end of a run is judged
VALIDATED = 5  # every fifth article of an edition is not tested on: settings are chosen by it


class ArticlesTask(Task):
    """A bag of the window's words, embedded. Any place of the whole text is as likely: long articles are met often."""

    features, optimizer = FEATURES, "adagrad"

    def __init__(self, texts: Wikipedia, seed: int) -> None:
        self.texts, self.seed = texts, seed
        self.classes = int(texts.train.labels.max()) + 1
        lengths = np.bincount(texts.train.labels, np.diff(texts.train.starts), self.classes)
        self.frequencies = torch.from_numpy(lengths / lengths.sum())

    def batch(self, step: int, size: int) -> tuple[Tensor, Tensor]:
        random = np.random.default_rng((self.seed, step))
        train = self.texts.train
        anywhere = random.integers(len(train.words), size=size)
        articles = np.searchsorted(train.starts, anywhere, side="right") - 1
        words = rarer(train.windows(articles, random.random(size), WINDOW))
        return torch.from_numpy(words), torch.from_numpy(train.labels[articles])

    def validation(self, count: int) -> Examples:
        return self._beginnings(count, validated=True)

    def test(self, count: int) -> Examples:
        return self._beginnings(count, validated=False)

    def tests_at_the_end(self) -> dict[str, Examples]:
        return {name: self._beginnings(OF_EDITION, False, [texts]) for name, texts in self.texts.tests.items()}

    def _beginnings(self, count: int, validated: bool, editions: Iterable[Articles] | None = None) -> Examples:
        """Return the first words of articles of some editions, or of all, in random order."""
        words, labels = [], []
        for edition in editions or self.texts.tests.values():
            places: Ids = np.arange(len(edition))
            places = places[(places % VALIDATED == 0) == validated]
            words.append(rarer(edition.windows(places, np.zeros(len(places)), WINDOW)))
            labels.append(edition.labels[places])
        order = np.random.default_rng(0).permutation(sum(map(len, labels)))[:count]
        return Examples(*(torch.from_numpy(np.concatenate(parts)[order]) for parts in (words, labels)))

    def trunk(self) -> nn.Module:
        return embedded_bag(self.texts.words, FEATURES)


def rarer(words: Ids) -> Ids:
    """Return the words with common ones taken out; words are numbered by falling count."""
    return np.where(words > COMMON, words, 0)


def articles(seed: int) -> ArticlesTask:
    """Return the task on Wikipedia."""
    return ArticlesTask(wikipedia(), seed)


def made_articles(classes: int, words: int, seed: int) -> ArticlesTask:
    """Return articles whose words are half their own and half everybody's, and an edition of each that is shorter."""
    random = np.random.default_rng(seed)
    own = random.integers(COMMON + 1, words, (classes, 20))

    def edition(length: int) -> Articles:
        chosen = own[np.arange(classes)[:, None], random.integers(20, size=(classes, length))]
        common = random.integers(1, words, (classes, length))
        text = np.where(random.random((classes, length)) < 0.5, chosen, common).astype(np.int32)
        return Articles(text.ravel(), length * np.arange(classes + 1), np.arange(classes))

    return ArticlesTask(Wikipedia(edition(2 * WINDOW), {"made": edition(WINDOW - 4)}, words), seed)
