"""Stand-ins for the C halves of `json`: the encoder, and the scanner that decoders have.

Mirrors `Modules/_json.c`; the work is that of the module's own Python halves.
"""

from __future__ import annotations

import json
import json.decoder
import json.encoder
import json.scanner
from collections.abc import Callable
from typing import Any

from .registry import PURE, polyfill


def _names_the_number() -> bool:
    """Whether the C encoder says which float it refuses."""
    try:
        json.dumps(float("inf"), allow_nan=False)
    except ValueError as error:
        return str(error).endswith("inf")
    raise AssertionError("infinity is no JSON")


_NAMES_THE_NUMBER = _names_the_number()


def _text_of_float(number: float, allow_nan: bool) -> str:
    if number != number:
        text = "NaN"
    elif number in (float("inf"), float("-inf")):
        text = "Infinity" if number > 0 else "-Infinity"
    else:
        return float.__repr__(number)
    if not allow_nan:
        which = f": {float.__repr__(number)}" if _NAMES_THE_NUMBER else ""
        raise ValueError(f"Out of range float values are not JSON compliant{which}")
    return text


if json.encoder.c_make_encoder is not None:

    @polyfill(json.encoder.c_make_encoder, check_signature=False)
    def make_encoder(
        markers: Any,
        default: Any,
        encoder: Any,
        indent: Any,
        key_separator: str,
        item_separator: str,
        sort_keys: Any,
        skipkeys: Any,
        allow_nan: Any,
    ) -> Callable[[Any, int], tuple[str, ...]]:
        """What `JSONEncoder.iterencode` encodes in one go with."""

        def text_of_float(number: float) -> str:
            return _text_of_float(number, allow_nan)

        encode = json.encoder._make_iterencode(
            markers, default, encoder, indent, text_of_float, key_separator, item_separator, sort_keys, skipkeys, True
        )
        return lambda obj, level: tuple(encode(obj, level))

    PURE.update({json.encoder.c_encode_basestring, json.encoder.c_encode_basestring_ascii, json.decoder.c_scanstring})

    @polyfill(json.decoder.JSONDecoder.raw_decode)
    def raw_decode(self: Any, s: Any, idx: Any = 0) -> Any:
        """The value at the start of a text, and where it ends; the decoder's C scanner gives way to the one in Python."""
        scan = self.scan_once
        if type(scan) is json.scanner.c_make_scanner:
            scan = json.scanner.py_make_scanner(self)
        try:
            found, end = scan(s, idx)
        except StopIteration as stop:
            raise json.decoder.JSONDecodeError("Expecting value", s, stop.value) from None
        return found, end
