"""Problem: a whole network on a machine, or several of them: from a program to its plan.

``network`` offers what may be chosen, little at first and more where that does not fit, chooses, packs, and forbids what cannot be
packed. ``co_planning`` plans networks of one machine that share what outlives inferences. ``bounds`` says what no plan can be below.
"""
