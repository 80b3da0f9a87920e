"""What is measured on a CUDA device: `run` is the command, `queue` the list of what is to be done, `cases` how each of it is done."""
