"""From a plan to a project: C sources, weights, a Makefile, and how to build and run them."""
