"""Problem: blocks with a size, and a first and a last step; an address for each, so that no two that are alive at once overlap.

Model: rectangles in time and address. Greedy orders come first, then a beam search, then constraint programming.
Bound: the most bytes that are alive in a step, and what the search proves. Every plan is checked once more by rules of its own.
"""
