"""Nothing is collected where no library is installed."""

import importlib.util

from .programs import LIBRARIES

collect_ignore = [] if any(importlib.util.find_spec(f.__name__) for f in LIBRARIES) else ["test_libraries.py"]
