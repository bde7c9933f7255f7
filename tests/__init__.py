"""The tests, cheapest first: unit, contract, simulation (no JVM), integration, acceptance; beside them the benchmarks."""
