# The cluster, as program.mk wants to know it.
GVSOC_TARGET := snitch
