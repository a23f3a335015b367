"""What every stage shares: element types, names, graphs, and the declaration language of kernels."""
