"""Control tokens (CTRL, Rashkin et al. 2021): features of responses that a generator learns and can be asked for."""
