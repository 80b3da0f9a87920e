"""The metacircular interpreter: frames, one handler per canonical op, calls, generators. It knows no types.

Entry: `frame.Frame.run`. Tests: `tests/interp/`.
"""
