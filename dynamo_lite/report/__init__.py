"""What the compiler did, for people: coverage, explanations, and running unmodified scripts."""
