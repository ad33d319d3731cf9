"""What every benchmark measures with: brokers to compare, load generators, a process's cost."""
