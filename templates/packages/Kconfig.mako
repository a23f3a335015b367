config DEEPLOY_${name.upper()}
	bool "Neural network ${name}"
	default y
	help
	  Builds neural network ${name}, which deeploy compiled to C. Include ${headers[0]} and call ${name}_init and ${name}_run.
