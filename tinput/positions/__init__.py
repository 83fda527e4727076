"""The textbook: one file a position scheme, pure torch, each with its paper and its equations.

Every scheme file exports the same names:
NAME, LABEL, COLOUR, INJECTION, FORMULA, PAPER, variants(config), predict(config, positions, ...), notice(effect, positions).
It never asks a model library: given a configuration as a plain mapping it predicts the numbers.
"""
