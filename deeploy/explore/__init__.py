"""Exploration: which spatial unrollings an accelerator for given networks should support."""
