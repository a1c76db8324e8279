"""Who trains: replicas of the trunk, the loop they run, and the coordinator that deals out batches."""
