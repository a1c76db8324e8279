"""Where it runs: threads of one process, or actors of Ray; and what is seen of a run meanwhile."""
