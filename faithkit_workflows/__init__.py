"""Everything that joins tasks: the commands, benchmarks, and the loading of whatever model a configuration names."""
