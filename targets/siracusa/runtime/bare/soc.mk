# Siracusa, as bare.mk wants to know it.
GVSOC_TARGET := siracusa
SOC_L1_BYTES := 262144
SOC_L2_BYTES := 2097152
SOC_SOURCES := neureka.c
