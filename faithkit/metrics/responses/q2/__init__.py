"""Q2: questions about a response, answered on the response and on the knowledge (Honovich et al. 2021)."""
