"""What an analysis tells torch's logs and structured trace, in torch's form: `TORCH_LOGS`, `TORCH_TRACE`.

Entry: `compile_log.CompileLog`. Tests: `tests/report/`.
"""
