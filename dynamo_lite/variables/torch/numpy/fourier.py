"""`numpy.fft`: its functions are modelled as those of numpy itself."""

from __future__ import annotations

import numpy.fft

from .models import model_functions

model_functions(numpy.fft)
