"""DoHA (Prabhumoye et al. 2021): BART that attends to the history and to the knowledge one after the other."""
