"""Races between backends: `autotune` picks for each graph the fastest backend with right results.

`race` times candidates in this process, `apart` in another one, `verify` compares them with eager execution; `results` stores choices under
the `key` of a graph; `switching` replaces callables while the program runs, `offline` races collected graphs.

Entry: `autotune.autotune`. Tests: `tests/tune/`.
"""
