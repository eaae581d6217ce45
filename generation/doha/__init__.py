"""DoHA (Prabhumoye et al. 2021): BART with one cross-attention to the history and a second to the knowledge."""
