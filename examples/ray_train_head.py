"""The work of sharded_head.py, done by Ray Train: it starts the processes, makes their group, and replaces lost ones.

    python examples/ray_train_head.py --workers 2

Without --address, on a cluster that is started here, closed to others. On one of several machines, all of them must see
the folder of the checkpoint, and have these examples in the same place. What workers print is in the logs of Ray.
"""

from typing import Any

from sharded_head import arguments, work

from manyclass.distributed.engines.ray_session import ray_session


def fit(workers: int, settings: dict[str, Any], restarts: int) -> list[str]:
    """Return what rank 0 tells of its work. To call where Ray is connected."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    trainer = TorchTrainer(
        lambda given: work(**given),  # in a process group that Ray has made: no init_process_group
        train_loop_config=settings,
        scaling_config=ScalingConfig(num_workers=workers),
        # Where a process is lost, all are started again, and go on from the checkpoint in the folder.
        run_config=RunConfig(storage_path=str(settings["folder"]), failure_config=FailureConfig(max_failures=restarts)),
    )
    told: list[str] = trainer.fit().return_value
    return told


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--address", help="of a cluster, or auto")
    options = parser.parse_args()
    settings = {"classes": options.classes, "steps": options.steps, "folder": options.folder.resolve()}
    with ray_session(options.address, options.workers):
        print(*fit(options.workers, settings, options.restarts), sep="\n")


if __name__ == "__main__":
    main()
