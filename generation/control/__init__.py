"""Control tokens (CTRL, Rashkin et al. 2021): features of responses, measured, learnt with, and asked for."""
