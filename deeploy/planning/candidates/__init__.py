"""Problem: the ways to compute one call: sizes of tiles, order of loops, one or two slots a window, the dimension divided over cores.

Model: all combinations of a grid of sizes are measured at once, in bytes of every memory and in cycles (``cost``).
Bound: of the candidates with the same sources those stay that no other one beats in bytes and cycles; of a long front a sample stays.
"""
