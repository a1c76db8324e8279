"""Training beyond one process: asynchronous Downpour SGD, with the classes' rows on parameter shards.

Everything but the `engines` is free of threads, processes and networks: `steps`, which two transports share out;
`servers`, which own the parameters; `workers`, which train. Nothing here imports torch or ray until a replica or an
engine needs them.
"""

from manyclass.distributed.job import Job
from manyclass.distributed.row_rules import ServerRule
from manyclass.distributed.settings import HeadSettings
from manyclass.distributed.staleness import Staleness

__all__ = ["HeadSettings", "Job", "ServerRule", "Staleness"]
