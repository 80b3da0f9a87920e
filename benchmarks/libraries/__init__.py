"""Programs of libraries that are written in torch, as their documentation uses them.

One module for a library: ten functions marked with `program`, each of which builds what is called, and its arguments, with the random
numbers that come next. `python -m benchmarks.libraries` measures them; the libraries have to be on PYTHONPATH.
"""
