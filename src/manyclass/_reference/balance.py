"""Balanced coordinates of queries and rows: products of whole numbers, exact in whatever order they are added."""

import numpy as np

from manyclass._balance import QUERY_FEATURE, ROW_FEATURE, Balance
from manyclass._reference.vector_math import Doubles, Floats, nearest_floats

VANISHING = 1e-60  # a vector below that counts as zero


def whole_numbers(vector: Doubles, most: int) -> tuple[Doubles, float]:
    """Return the vector rounded to whole numbers up to `most` in size, and the unit they are in."""
    largest = float(np.abs(vector).max())
    if largest < VANISHING:
        return np.zeros_like(vector), 0.0
    return np.rint(vector * (most / largest)), largest / most


def query_coordinates(query: Floats, balance: Balance) -> Floats:
    """Return the coordinates of one query."""
    moved = (query.astype(np.float64) - balance.mean) / balance.scales
    if not balance.directions:
        return nearest_floats(moved)
    levels, unit = whole_numbers(moved, QUERY_FEATURE)
    sums: Doubles = balance.query_levels.astype(np.float64) @ levels
    return nearest_floats(sums * (unit * balance.query_units))


def row_coordinates(row: Floats, balance: Balance) -> tuple[Floats, float]:
    """Return the coordinates of one row, and its mean logit without the bias."""
    moved = (row.astype(np.float64) - balance.centre) * balance.scales
    levels, unit = whole_numbers(moved, ROW_FEATURE)
    products: Doubles = (balance.row_levels.astype(np.float64) @ levels) * (unit * balance.row_units)
    coordinates = products[:-1] if balance.directions else moved
    return nearest_floats(coordinates), float(products[-1])
