"""Which learning rate each output layer has, as the records of the stage `rates` tell; read without torch."""

from experiments.frame.records import Record, Records


def tried_rates(records: Records, stage: str = "rates") -> dict[str, dict[float, Record]]:
    """Return the newest record of each rate, by output layer. stage: where they were tried."""
    found: dict[str, dict[float, Record]] = {}
    for record in records.select(stage=stage, kind="rate"):
        found.setdefault(record["head"], {})[record["rate"]] = record
    return found


def chosen_rates(records: Records, stage: str = "rates") -> dict[str, float]:
    """Return by output layer the rate with the highest average precision; of equal ones the lower."""
    return {
        head: max(sorted(tried), key=lambda rate: tried[rate]["average_precision"])
        for head, tried in tried_rates(records, stage).items()
    }
