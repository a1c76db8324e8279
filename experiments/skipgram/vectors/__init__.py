"""Saved word vectors: files as word2vec has them, and questions to them through the index."""
