"""Graph compilers: one registry, one file per backend, AOTAutograd behind one adapter. Only files here may import
torch's compilers.

Entry: `registry.lookup_backend`. Tests: `tests/backends/`.
"""
