"""A text becomes numbers, a corpus, and batches of words with their neighbours."""
