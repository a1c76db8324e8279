"""What the stages do: train and time, and write records."""
