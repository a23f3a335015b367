# Network ${name} as a component of ESP-IDF: put this folder into the components of your project, and name ${name} in REQUIRES.
idf_component_register(
  SRCS
% for source in sources:
  "${source}"
% endfor
  INCLUDE_DIRS "include"
  PRIV_INCLUDE_DIRS ${" ".join(f'"{folder}"' for folder in folders)}
)
target_compile_options(<%text>${COMPONENT_LIB}</%text> PRIVATE -O2 -ffp-contract=off)
