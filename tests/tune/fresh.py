"""What a process that begins has not seen."""

import dynamo_lite
from dynamo_lite.tune.autotune import store_of


def new_process():
    """As in a new process: nothing is compiled, and the choices in the store are an earlier one's."""
    dynamo_lite.reset()
    store_of.cache_clear()
