"""What torch's compilers compute wrongly, or refuse, put differently: in the graph before they get it, or in their own functions.

Entry: one function per file, `patches.Patches`. Tests: `tests/backends/`.
"""
