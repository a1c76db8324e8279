"""What a step computes, and how workers and shards share it: two transports, the classes, the index of moving rows."""
