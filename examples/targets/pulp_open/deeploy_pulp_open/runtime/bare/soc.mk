# pulp-open, as bare.mk wants to know it.
GVSOC_TARGET := pulp-open
SOC_L1_BYTES := 65536
SOC_L2_BYTES := 1638400
SOC_SOURCES :=
