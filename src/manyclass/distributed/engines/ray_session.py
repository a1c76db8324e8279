"""A connection to Ray: a cluster by its address, or one that is started here, on loopback and behind a token.

Whoever reaches the ports of a Ray cluster can run code on it. So a cluster that is started here listens on 127.0.0.1
alone, asks for a token that nobody else has, and has no dashboard. A cluster that was started elsewhere is secured
where it was started: docs/distributed.md says how.
"""

import logging
import os
import re
import secrets
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from manyclass.errors import ConfigError

OLDEST, BELOW = (2, 52), (3, 0)  # token authentication came with 2.52
PATIENCE = 5.0  # seconds until an address counts as unreachable
TRIES = 3
STORE = 256 << 20  # bytes of shared memory for messages of a cluster that is started here

# Read by Ray's processes when they start. The first: Ray's name for "no cluster of several machines", on any system.
LOCAL = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}


@contextmanager
def ray_session(address: str | None, cpus: int) -> Iterator[Any]:
    """Yield the module `ray`, connected. cpus: places for actors of a cluster that is started here.

    address: None, or "local", which is Ray's name for it: one that is started here.
    """
    check_version()
    address = None if address == "local" else address
    if address is None:
        secure_environment()
    import ray

    if ray.is_initialized():  # by the caller, who also ends it
        yield ray
        return
    _connect(ray, address, cpus)
    try:
        yield ray
    finally:
        ray.shutdown()


def _connect(ray: Any, address: str | None, cpus: int) -> None:
    """Start a cluster here, or connect to one; a machine that is busy gets a second and a third try."""
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "namespace": "manyclass"}
    for attempt in range(1, TRIES + 1):
        try:
            if address is None:
                # "local": without it Ray takes any cluster of the same user that happens to run on this machine
                ray.init(address="local", num_cpus=cpus, include_dashboard=False, object_store_memory=STORE, **quiet)
            else:
                ray.init(address=address, **quiet)
            return
        except Exception as error:  # Ray raises bare ones, too
            ray.shutdown()
            if attempt < TRIES and address is None:
                continue
            said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            where = "a cluster on this machine" if address is None else f"address={address!r}"
            raise ConfigError(f"{where}: Ray does not connect ({said}); look at the address, and at the token of the "
                              "cluster (RAY_AUTH_MODE, RAY_AUTH_TOKEN_PATH)") from error  # fmt: skip


def check_version() -> None:
    """Raise a ConfigError where Ray has another version than this engine is written for."""
    found = version_of_ray()
    known = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
    if not OLDEST <= known < BELOW:
        raise ConfigError(f"ray {found} is installed; this engine runs with 2.52 or later, below 3: "
                          "pip install 'manyclass[ray]'")  # fmt: skip


def version_of_ray() -> str:
    """Return the version that is installed; ModuleNotFoundError where none is."""
    try:
        return version("ray")
    except ModuleNotFoundError:  # what importlib raises is a subclass, but without the module's name
        raise ModuleNotFoundError("ray is not installed", name="ray") from None


def check_reachable(address: str) -> None:
    """Raise a ConfigError where nobody listens at host:port; Ray itself would wait for minutes."""
    if address == "auto":
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"address={address!r} is not host:port; give what `ray start --head` printed, or 'auto'")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()
    except OSError as error:
        raise ConfigError(f"address={address!r} cannot be reached ({error}); is `ray start --head` running there, and "
                          "the port open to this machine?") from None  # fmt: skip


def secure_environment() -> None:
    """Set what keeps a cluster that is started here to itself; what is set already stays. Before `import ray`."""
    if "ray" in sys.modules:  # it has read its environment when it was imported
        if "RAY_AUTH_MODE" not in os.environ and not sys.modules["ray"].is_initialized():
            raise ConfigError(
                "ray was imported before a token could be set; call manyclass.distributed.engines.ray_session."
                "secure_environment() before `import ray`, or connect with ray.init yourself"
            )
        return
    for name, value in LOCAL.items():
        os.environ.setdefault(name, value)
    if os.environ["RAY_AUTH_MODE"] == "token" and not os.environ.get("RAY_AUTH_TOKEN_PATH"):
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
