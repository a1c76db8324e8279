"""How torch's threads wait between two operations: read once, when torch is loaded, so it is settled before."""

import os

SPINS = "20000"  # tens of microseconds: the next small operation finds them awake, and native code waits not long


def settle_waiting_threads() -> None:
    """Have OpenMP threads spin briefly and then sleep, unless the user has settled it.

    By default they spin for milliseconds, on the cores that native code wants. Sleeping at once is no better for a
    small network: to be woken for each operation takes longer than many an operation.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
