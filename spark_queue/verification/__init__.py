"""What must always hold of a journal, whatever the code that decided thinks of it: simulations, kill tests and `sparkq verify`."""
