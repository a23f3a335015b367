"""A target of deeploy: a Cortex-M7 with tightly coupled memory."""
