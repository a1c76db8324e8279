"""The paper's second experiment, skip-gram: predict the words near a word among a whole vocabulary.

text        a text becomes numbers, a corpus, and batches of words with their neighbours
heads       the output layers that are compared, and how one of them learns
evaluation  prediction of held-out text, analogies, similarities
peers       gensim and fastText on the same text
vectors     saved word vectors, and questions to them; __main__ asks them on the command line
measuring   what the stages do; stages lists them, plan has their sizes
page        tables, figures, verdicts and the page, made of records
"""

from experiments.skipgram.stages import EXPERIMENT

__all__ = ["EXPERIMENT"]
