"""A target of deeploy for RV32IMC microcontrollers."""
