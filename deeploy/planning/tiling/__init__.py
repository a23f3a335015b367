"""Problem: a call, and the sizes of its tiles; what each tile reads and writes, and in which order tiles follow each other.

Model: a nest of loops with one affine map an operand. A window is what the map makes of a tile's iterations, clipped at the tensor's
borders; its size is exact, halos included. Calls that share a loop are tiled along a tensor between them (``fused_group``).
"""
