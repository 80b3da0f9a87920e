"""Programs of several processes, each compared with itself run eagerly. Everything runs on the CPU, with gloo."""
