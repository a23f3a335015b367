"""Problem: a graph's nodes, and a target's kernels; which of them compute which node, on which operands.

Model: a kernel declares the operator, types, layouts and the loops with the maps of its operands; a node fits where all of these
agree. Views of a tensor become strides of operands where every reader can follow them, copies elsewhere. All kernels that fit are
variants of a call; which one runs is chosen with everything else (``choice``).
"""
