"""What the peers need on a machine; read without torch."""

from experiments.frame.needs import Need, package

INSTALL = "pip install '.[skipgram-peers]'"


def needs() -> list[Need]:
    """Return the packages of the peers."""
    return [
        package("gensim", "peers of skipgram: word2vec", INSTALL, optional=True),
        package("fasttext-numpy2", "peers of skipgram: fastText", INSTALL, optional=True),
    ]
