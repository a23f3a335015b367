"""Learning on the device, beside the compiler: from a model to one graph that is a training step (docs/training.md)."""
