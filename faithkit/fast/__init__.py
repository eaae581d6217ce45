"""The optimised paths of models: packed batches, attention, layers, decoding state; README.md lists what each gains."""
