"""The version of the package, which projects name."""

VERSION = "0.1.0"
