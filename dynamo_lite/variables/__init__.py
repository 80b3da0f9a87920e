"""Models of Python objects, one file per CPython type family; `families` registers them all."""
