"""What the paper reports of its second experiment (section 4.2), for the columns beside ours."""

PRECISION = {  # in percent, hierarchical softmax and WTA softmax after 100 hours
    "1": (1.15, 1.93),
    "3": (2.36, 5.18),
    "5": (3.14, 7.48),
    "10": (4.52, 10.2),
    "20": (6.28, 13.4),
    "50": (9.63, 16.5),
    "100": (13.2, 18.5),
}
AVERAGE_PRECISION = (2.31, 4.53)
EXAMPLES_PER_SECOND = (100e9 / 360_000, 100e6 / 360_000)  # 100 billion and 100 million examples in 100 hours
