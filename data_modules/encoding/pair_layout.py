"""The order of the two texts of a (knowledge, response) pair in a sequence."""

KNOWLEDGE_FIRST, RESPONSE_FIRST = ORDERS = ("knowledge_response", "response_knowledge")
