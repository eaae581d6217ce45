"""Changes the code a little, and tells which changes no test notices: `make mutate`."""
