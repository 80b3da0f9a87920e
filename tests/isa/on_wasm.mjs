// Runs pytest on CPython 3.14 compiled to WebAssembly: node on_wasm.mjs FOLDER ARGUMENT…
//
// FOLDER holds node_modules/pyodide, `site` (pytest and bytecode) and `stdlib` (the unpacked standard library). The
// extension module cannot be loaded there; of it continuations need two functions, which are written in Python below.
import { createRequire } from "node:module";
import { dirname, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const [folder, ...args] = process.argv.slice(2);
const root = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
const find = createRequire(resolve(folder, "package.json"));
const { loadPyodide } = await import(pathToFileURL(find.resolve("pyodide/pyodide.mjs")));
const py = await loadPyodide();

function mount(from, to) {
  py.FS.mkdirTree(to);
  py.FS.mount(py.FS.filesystems.NODEFS, { root: from }, to);
}
mount(root, "/main");
mount(resolve(folder, "site"), "/site");
mount(resolve(folder, "stdlib"), "/lib/python3.14");

py.globals.set("args", py.toPy(args));
process.exitCode = py.runPython(`
import os, sys

sys.path[:0] = ["/main", "/site"]
sys.dont_write_bytecode = True
os.chdir("/main")
import types

import pytest


def call_moved(function, arguments):
    moved = arguments[:]
    arguments.clear()
    return function(*moved)


def raise_again(exception):
    raise exception


extension = types.ModuleType("dynamo_lite._eval_frame")
extension.call_moved, extension.raise_again = call_moved, raise_again
sys.modules[extension.__name__] = extension

int(pytest.main(["-p", "no:cacheprovider", "-o", "timeout=0", *args]))
`);
