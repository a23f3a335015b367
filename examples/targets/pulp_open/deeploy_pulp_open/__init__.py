"""A target of deeploy with two accelerators of different configurations."""
