"""Problem: calls that follow each other and would be faster, or move less, computed together, a few tiles of each at a time.

Model: a group is an interval of the calls of a plan with tiles and starting times for each of them; what a group takes is followed
tile by tile in the order of its schedule. ``layer_fusion`` has groups of rows, ``product_fusion`` those of matrix products with
weights that do not fit, ``parallel_branches`` and ``layer_pipelining`` those in which an accelerator and cores work at the same time,
``flat_memory`` those that save memory on a machine with one. Those are taken together that save the most; the walk over the whole
network decides (``deeploy.driver.layer_fusion``).
"""
