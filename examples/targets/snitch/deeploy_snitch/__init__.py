"""A target of deeploy: a Snitch cluster."""
