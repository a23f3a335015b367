"""From a lowered graph to a plan: which kernel computes every layer, in which tiles, what lies where, and what moves when.

Eleven rooms, in the order in which they are best read; each imports those in front of it alone:

* ``program``: an ordered list of calls of kernels on typed buffers, and which buffers may share an address.
* ``binding``: the kernels of a target that fit each node, and the program of a graph.
* ``tiling``: the loops of a call that is cut, the windows of its operands, and loops that several calls share.
* ``cost``: cycles of a call in tiles.
* ``candidates``: the ways to compute one call that are worth choosing from.
* ``packing``: addresses for what is alive at the same time, and the order of calls that needs the least memory.
* ``plan``: the result.
* ``energy``: what an inference takes, by engine, memory and path.
* ``choice``: one candidate for every call and a residence for every buffer, by constraint programming.
* ``groups``: calls that are computed together.
* ``planner``: all of it for one network, and for several networks on one machine.
"""
