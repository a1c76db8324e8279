"""The paper's first experiment: 21 thousand image classes."""
