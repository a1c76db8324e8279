"""The clusters that the counter workload runs on: one node, or several of which one may be removed at a time."""

import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from experiments.distributed.task import let_workers_import_this
from manyclass.distributed.engines.ray_session import ray_session, secure_environment

CALLS = "CoreWorkerService.grpc_client.PushTask"  # how Ray calls a method of an actor
LOST_MESSAGES = {CALLS: {"num_failures": -1, "req_failure_prob": 2, "resp_failure_prob": 2}}  # percent
LOSING = {
    "RAY_testing_rpc_failure": json.dumps(LOST_MESSAGES),
    # Before Ray says that a message was lost it waits a second whether its actor died; here less, for more pushes.
    "RAY_timeout_ms_task_wait_for_death_info": "100",
}
NODE_STORE = 100 << 20  # bytes of shared memory of each node
# A removed node is noticed after three seconds instead of fifteen: the same faults in less time.
NOTICE = {"health_check_period_ms": 1000, "health_check_failure_threshold": 3}
REMOVALS = 3  # the weight of removed nodes beside the other kinds of faults


class Nodes(NamedTuple):
    """A cluster under test. ray: connected. faults: what its nodes offer to a nemesis. mend: replaces removed nodes.

    Nodes are removed by any thread, but only the main one may start them: Ray sets signal handlers for each.
    """

    ray: Any
    faults: dict[str, tuple[int, Callable[[], bool]]]
    mend: Callable[[], None]


@contextmanager
def cluster(places: int, nodes: int, lose_messages: bool) -> Iterator[Nodes]:
    """Yield a cluster. places: for actors. nodes: beside the head, each with so many places; 0: there is no other."""
    let_workers_import_this()
    if lose_messages:
        os.environ |= LOSING
    try:
        if not nodes:
            with ray_session(None, places) as ray:
                yield Nodes(ray, {}, lambda: None)
        else:
            with _several_nodes(places, nodes) as found:
                yield found
    finally:
        for name in LOSING:
            os.environ.pop(name, None)


@contextmanager
def _several_nodes(places: int, count: int) -> Iterator[Nodes]:
    secure_environment()
    import ray
    from ray.cluster_utils import Cluster

    node: dict[str, Any] = {"num_cpus": places, "object_store_memory": NODE_STORE}
    head = node | {"num_cpus": 1, "include_dashboard": False, "_system_config": NOTICE}
    made = Cluster(initialize_head=True, head_node_args=head)
    try:
        nodes: list[Any] = []

        def mend() -> None:
            while len(nodes) < count:
                nodes.append(made.add_node(**node))

        def remove() -> bool:
            """Kill the node that has been there longest, where most actors are, unless the last one is missing yet."""
            if len(nodes) < count:
                return False
            made.remove_node(nodes.pop(0), allow_graceful=False)
            return True

        mend()
        ray.init(address=made.address, log_to_driver=False, logging_level=logging.ERROR, namespace="manyclass")
        yield Nodes(ray, {"remove node": (REMOVALS, remove)}, mend)
    finally:
        ray.shutdown()
        made.shutdown()
