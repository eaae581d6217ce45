"""Entailment models of others: a response is supported if some part of the document supports each of its claims."""
