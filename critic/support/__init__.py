"""The detector `default`: compares a response with its context word by word, on an encoder that is not fine-tuned."""
