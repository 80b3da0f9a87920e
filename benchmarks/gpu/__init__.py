"""What wants a CUDA device: run `python -m benchmarks.gpu.run` on a machine that has one, and commit the results."""
