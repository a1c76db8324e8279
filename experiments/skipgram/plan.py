"""Sizes of a run: one plan for the full run, one for a quick one."""

from dataclasses import dataclass, field

from experiments.skipgram.text.corpus import CorpusSettings


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is learned, for how long, and what it is tested on."""

    corpus: CorpusSettings = field(default_factory=lambda: CorpusSettings(min_count=2))
    features: int = 128
    window: int = 5  # neighbours on either side, at most
    sample: float = 1e-4  # t of word2vec's rule by which frequent words are left out
    segments: int = 64  # of 64 words in a batch: some 2,400 words that stay, which share their candidates
    seconds: float = 720.0  # of CPU time for each output layer and each peer, all threads together
    evaluations: int = 8  # on the way
    tests: int = 5_000  # words of held-out text at the end
    tests_on_the_way: int = 1_000
    questions_every: int = 8  # of Google's analogies on the way one of so many is asked
    rates: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4)  # that every output layer may choose from, on validation articles
    falling_rates: tuple[float, ...] = (0.1, 0.2, 0.4)  # the same where they fall: more at first, less in the end
    rates_seconds: float = 40.0  # of CPU time for each of them
    rates_tests: int = 2_000  # words of validation articles
    full_softmax: int = 50_000  # up to so many words
    ablation_words: int = 6_000_000  # learned from in each ablation
    few_words: int = 2_500_000  # where too few examples are the question, and of layers that ask an index for each word
    growth: tuple[int, ...] = (10_000, 100_000, 1_000_000)  # vocabularies
    growth_steps: int = 100
    seeds: tuple[int, ...] = (0, 1, 2)  # on a smaller corpus
    seeds_seconds: float = 45.0
    seeds_words: int = 30_000  # vocabulary of the smaller corpus
    made_sentences: int = 0  # of a text that is made on the spot; 0: the text is given


FULL = Plan()
QUICK = Plan(
    corpus=CorpusSettings(min_count=3, held_out_every=20), features=32, sample=1e-3, segments=8, seconds=5.0,
    evaluations=4, tests=600, tests_on_the_way=300, questions_every=1, rates=(0.1, 0.4), rates_seconds=1.0,
    rates_tests=200, ablation_words=150_000, few_words=20_000,
    growth=(2_000, 20_000), growth_steps=10, seeds=(0, 1), seeds_seconds=1.5, seeds_words=1_000, made_sentences=30_000,
)  # fmt: skip
