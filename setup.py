"""Builds the C extension; everything else about the package is in pyproject.toml."""

import glob
import sys

from setuptools import Extension, setup

compile_args = [] if sys.platform == "win32" else ["-O2", "-Wall", "-fvisibility=hidden"]
libraries = ["dl"] if sys.platform.startswith("linux") else []  # dlopen(); part of libc only since glibc 2.34

setup(
    ext_modules=[
        Extension(
            "dynamo_lite._eval_frame",
            sources=["dynamo_lite/_eval_frame.c"],
            depends=sorted(glob.glob("dynamo_lite/csrc/*.h")),
            extra_compile_args=compile_args,
            libraries=libraries,
        )
    ],
)
