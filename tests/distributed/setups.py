"""Models and loops of training in two processes: data parallel, sharded, tensor and sequence parallel."""

SETUPS = {}
