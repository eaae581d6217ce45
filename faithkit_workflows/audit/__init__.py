"""Audits any detector by one protocol: accuracy, invariances, changed copies of documents, and the faults they show."""
