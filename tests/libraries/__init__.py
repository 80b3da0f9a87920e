"""Modules and functions of libraries that stand on torch, as their users call them. `make libraries` installs the libraries beside the
other packages and runs them; where none is installed there is nothing to run.
"""
