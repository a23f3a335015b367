"""Many chips: a graph cut into one graph per chip, joined by Send and Recv."""
