"""Data sets that experiments share: WordNet's glosses, rows made from a seed, and a layer like a trained one."""
