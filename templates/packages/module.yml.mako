name: ${name}
build:
  cmake: zephyr
  kconfig: zephyr/Kconfig
