"""Sweeps: many networks times targets times options, each combination compiled and measured once, as a table and a page."""
