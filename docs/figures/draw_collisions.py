"""Draw how often winner codes agree, against theory: docs/figures/collisions.png. Needs manyclass and matplotlib."""

import math
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt

import manyclass as mc

INK, QUIET = "#22303c", "#8795a1"
COLOURS = {2: "#1f4e9c", 4: "#17a2a2", 8: "#e89a2c", 16: "#d1361f"}
FEATURES = 512
Floats = npt.NDArray[np.float64]


def pair(cosine: float, seed: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return two normal vectors with exactly that cosine."""
    left, noise = np.random.default_rng(seed).normal(size=(2, FEATURES))
    left /= np.linalg.norm(left)
    noise -= noise @ left * left
    right = cosine * left + math.sqrt(1 - cosine**2) * noise / np.linalg.norm(noise)
    return left.astype(np.float32), right.astype(np.float32)


def agreement(
    left: npt.NDArray[np.float32], right: npt.NDArray[np.float32], window: int, codes: int, seed: int
) -> float:
    """Return the share of codes that agree: votes of an index with one code per band."""
    config = mc.HashConfig.paper(window=window, codes=codes, bands=codes, seed=seed)
    return float(mc.ClassIndex.build(left[None], config=config).votes(right)[0]) / codes


def exact_probability(left: npt.NDArray[np.float32], right: npt.NDArray[np.float32], window: int) -> float:
    """Return the collision probability of these two vectors over all windows (vectors without ties)."""
    below = ((left[:, None] > left) & (right[:, None] > right)).sum(1)
    return sum(math.comb(int(m), window - 1) for m in below) / math.comb(FEATURES, window)


def normal_probability(cosine: float, window: int) -> float:
    """Return the collision probability of two normal vectors with many features: k·E[Φ₂(a, b)^(k-1)]."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(96)
    weights = weights / weights.sum()
    a = np.broadcast_to(nodes[:, None], (96, 96))
    b = cosine * a + math.sqrt(1 - cosine**2) * nodes[None, :]
    # Φ₂ is Φ(a)Φ(b) plus the density integrated over the correlation, taken as sin θ.
    phi = np.vectorize(lambda v: 0.5 * math.erfc(-v / math.sqrt(2)))
    below = phi(a) * phi(b)
    steps, shares = np.polynomial.legendre.leggauss(64)
    top = math.asin(cosine)
    for step, share in zip(steps, shares, strict=True):
        angle = (step + 1) / 2 * top
        exponent = -(a * a + b * b - 2 * a * b * math.sin(angle)) / (2 * math.cos(angle) ** 2)
        below = below + share / 2 * top * np.exp(exponent) / (2 * math.pi)
    inside = np.clip(below, 0, 1) ** (window - 1)
    return float(window * (weights[:, None] * weights[None, :] * inside).sum())


def kendall(left: npt.NDArray[np.float32], right: npt.NDArray[np.float32]) -> float:
    signs = np.sign(left[:, None] - left) * np.sign(right[:, None] - right)
    return float(signs.sum() / (FEATURES * (FEATURES - 1)))


def against_cosine(axes: plt.Axes) -> None:
    curve = np.linspace(-0.9, 0.99, 60)
    points = (-0.8, -0.5, -0.2, 0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.97)
    for window, colour in COLOURS.items():
        axes.plot(curve, [normal_probability(float(r), window) for r in curve], color=colour, linewidth=1.8)
        rates = [np.mean([agreement(*pair(r, seed), window, 3008, seed) for seed in range(12)]) for r in points]
        axes.plot(points, rates, "o", color=colour, markersize=4.5, label=f"window {window}")
    axes.set(xlabel="cosine of the two vectors", ylabel="share of codes that agree", ylim=(0, 1), xlim=(-1, 1.02))
    axes.set_xticks([-1, -0.5, 0, 0.5, 1])
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    axes.set_title("Agreement rises with the cosine\ndots: 3008 codes, mean of 12 pairs; lines: analytic", fontsize=10)


def against_rank_correlation(axes: plt.Axes) -> None:
    axes.plot([-1, 1], [0, 1], color=INK, linewidth=1.5, label="(1 + tau) / 2")
    for codes, colour, size in ((64, "#c3ccd4", 4), (1024, "#6f9fc4", 4), (16_384, "#1f4e9c", 4)):
        taus, rates = [], []
        for seed, cosine in enumerate(np.linspace(-0.98, 0.98, 40)):
            left, right = pair(float(cosine), seed)
            taus.append(kendall(left, right))
            rates.append(agreement(left, right, 2, codes, seed))
        axes.plot(taus, rates, "o", color=colour, markersize=size, label=f"{codes:,} codes")
    axes.set(xlabel="Kendall's rank correlation tau", ylabel="share of codes that agree", ylim=(0, 1), xlim=(-1, 1))
    axes.set_xticks([-1, -0.5, 0, 0.5, 1])
    axes.set_title("Window 2: agreement tends to\nthe rank correlation as codes grow", fontsize=10)
    axes.legend(frameon=False, fontsize=9, loc="upper left")


def against_codes(axes: plt.Axes) -> None:
    sizes = [2**power for power in range(4, 15)]
    left, right = pair(0.7, 1)
    for window in (4, 16):
        truth = exact_probability(left, right, window)
        wrong = [[agreement(left, right, window, codes, seed) - truth for seed in range(30)] for codes in sizes]
        spread = np.sqrt(np.mean(np.square(wrong), axis=1))
        independent = [math.sqrt(truth * (1 - truth) / codes) for codes in sizes]
        axes.plot(sizes, independent, color=COLOURS[window], linewidth=1.5)
        axes.plot(sizes, spread, "o", color=COLOURS[window], markersize=4.5, label=f"window {window}")
    axes.set(xscale="log", yscale="log", xlabel="codes", ylabel="rms error of the agreement")
    axes.set_title("Structured windows (dots, 30 seeds) scatter\nlike independent permutations (lines)", fontsize=10)
    axes.legend(frameon=False, fontsize=9)


def draw() -> None:
    plt.rcParams.update(
        {"font.family": "sans-serif", "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": QUIET}
    )
    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left"})
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.4), layout="constrained")
    for axis in axes:
        axis.grid(color="#e4e8ec")
        axis.set_axisbelow(True)
    against_cosine(axes[0])
    against_rank_correlation(axes[1])
    against_codes(axes[2])
    figure.savefig(Path(__file__).parent / "collisions.png", dpi=120, facecolor="white")


if __name__ == "__main__":
    draw()
