"""The paper's second experiment, skip-gram: predict the words near a word among a whole vocabulary.

text_words, numbered_text, phrases, corpus   a text becomes numbers; made_text makes one with known analogies
examples                                     words with their neighbours, batch by batch, on a thread of their own
contestants, negative_sampling, network      the output layers; learning trains one of them
prediction, analogies, similarity, word_sets what is measured; testing puts it together for ours and for peers
peers, peer_text, tree_probabilities         gensim and fastText (peer_packages: what to install)
task, plan, stages, *_stage(s), growth       what is run
names, tables, figures, page, documents      what is told
vector_files, lookup, __main__               saved vectors, and questions to them
"""

from experiments.skipgram.stages import EXPERIMENT

__all__ = ["EXPERIMENT"]
