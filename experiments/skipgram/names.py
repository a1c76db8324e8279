"""Names and colours of the output layers, on the page and in figures; read without torch."""

NAMES = {  # in the order they are trained
    "candidate": "candidate softmax (manyclass)",
    "hierarchical": "hierarchical softmax",
    "negative": "negative sampling",
    "sampled": "sampled softmax",
    "wta": "WTA softmax (the paper's layer)",
    "full": "full softmax",
}
PEER_NAMES = {
    "gensim hierarchical": "gensim, hierarchical softmax",
    "gensim negative": "gensim, negative sampling",
    "fastText": "fastText",
}
SHORT = {
    "candidate": "candidate (ours)", "hierarchical": "hierarchical", "negative": "negative sampling",
    "sampled": "sampled", "wta": "WTA, literal", "full": "full softmax", "gensim hierarchical": "gensim, tree",
    "gensim negative": "gensim, negative", "fastText": "fastText",
}  # fmt: skip
COLOURS = {
    "candidate": "#d1361f", "hierarchical": "#2c7fb8", "negative": "#1bb5b5", "sampled": "#2a9d4a", "wta": "#e89a2c",
    "full": "#5b6670", "gensim hierarchical": "#1f4e9c", "gensim negative": "#0b6a78", "fastText": "#7a5195",
}  # fmt: skip


FALLING = ("candidate", "hierarchical")  # that learn once more with a rate that falls


def falling(head: str) -> str:
    """Return the name of the stage in which an output layer learns with a rate that falls."""
    return f"{head}-falling"


def stage_of(peer: str) -> str:
    """Return the name of a peer's stage, as the command line has it."""
    return peer.replace(" ", "-")
