"""What the experiments with pictures share: the network, and how far the examples of a class lie apart in it."""
