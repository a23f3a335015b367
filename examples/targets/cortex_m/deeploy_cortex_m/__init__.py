"""Targets of deeploy for Cortex-M4 and Cortex-M7 microcontrollers."""
