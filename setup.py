"""Builds the C extension; everything else about the package is in pyproject.toml."""

import glob
import pathlib
import runpy
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

compile_args = [] if sys.platform == "win32" else ["-O2", "-Wall", "-fvisibility=hidden"]
libraries = ["dl"] if sys.platform.startswith("linux") else []  # dlopen(); part of libc only since glibc 2.34
KINDS = "dynamo_lite/guards/kinds.py"


class BuildWithKinds(build_ext):
    """Makes the header with the kinds of guards, which Python and C have from one table."""

    def build_extension(self, ext):
        folder = pathlib.Path(self.build_temp)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "guard_kinds.h").write_text(runpy.run_path(KINDS)["c_header"](), encoding="utf-8")
        ext.include_dirs.append(str(folder))
        super().build_extension(ext)


setup(
    cmdclass={"build_ext": BuildWithKinds},
    ext_modules=[
        Extension(
            "dynamo_lite._eval_frame",
            sources=["dynamo_lite/_eval_frame.c"],
            depends=[KINDS, *sorted(glob.glob("dynamo_lite/csrc/*.h"))],
            extra_compile_args=compile_args,
            libraries=libraries,
        )
    ],
)
