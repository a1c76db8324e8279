"""Who owns parameters, and what survives: shards, the trunk's server, pushes that count once, checkpoints, logs."""
