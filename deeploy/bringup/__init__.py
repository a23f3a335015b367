"""Bringing the compiler to a machine: a skeleton to begin with, and a check of every kernel against its declaration."""
