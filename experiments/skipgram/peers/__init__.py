"""Other people's skip-gram, gensim and fastText, learning the same text."""
