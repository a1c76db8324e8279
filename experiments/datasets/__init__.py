"""Data sets that experiments share: glosses, articles, visits, layers of trained networks, rows made from a seed."""
