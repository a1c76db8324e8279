"""The network of the first experiment."""

import torch

from experiments.imagenet21k.model import FULL
from experiments.vision.alexnet import AlexNet, multiply_adds


def test_full_network_has_the_papers_width_and_fits_two_cores():
    network = AlexNet(FULL.features, FULL.hidden, FULL.widths)
    picture = torch.zeros(1, 1, 64, 64)
    assert 30e6 < multiply_adds(network, picture) < 70e6
    assert network.training  # counting leaves no trace
    features = network.eval()(torch.randn(3, 1, 64, 64))
    assert features.shape == (3, 4096)
    assert (features >= 0).all()
    assert (features == 0).any()


def test_multiply_adds_count_by_hand():
    network = AlexNet(features=8, hidden=4, widths=(1, 2, 3, 4, 5))
    by_hand = (16 * 16 * 121) + (8 * 8 * 2 * 25) + (4 * 4 * 9 * (3 * 2 + 4 * 3 + 5 * 4)) + (20 * 4) + (4 * 8)
    assert multiply_adds(network, torch.zeros(1, 1, 64, 64)) == by_hand
