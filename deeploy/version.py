"""The version of the package, which projects name."""

VERSION = "0.2.0"
