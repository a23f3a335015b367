# Network ${name} as a module of Zephyr: name its folder in ZEPHYR_EXTRA_MODULES, or in the manifest of west.
if(CONFIG_DEEPLOY_${name.upper()})
  zephyr_library_named(${name})
  zephyr_include_directories(../include)
  zephyr_library_include_directories(${" ".join(f"../{folder}" for folder in folders)})
  zephyr_library_sources(
% for source in sources:
    ../${source}
% endfor
  )
endif()
