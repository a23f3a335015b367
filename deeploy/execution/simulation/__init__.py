"""Execution of Programs and Plans without hardware."""
