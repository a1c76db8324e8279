"""Measurements of manyclass beside its peers; run one with `python -m benchmarks.<stage>`.

Stages measure and append JSON lines to `benchmarks/results/core/`; `benchmarks.figures` draws from those
files only.
"""
