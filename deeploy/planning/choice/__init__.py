"""Problem: one candidate for every call, and for every buffer the memory in which it lies, so that the network takes the fewest cycles.

Model (``choose``): a literal for each candidate and residence, a capacity for each memory and step, the sum of cycles as objective.
Where everything fits as near as it can, the cheapest candidates are the answer and nothing is solved (``problem.obvious_choice``).
Bound: the solver's. What does not fit is explained by the same problem with bytes alone (``infeasibility``).
"""
