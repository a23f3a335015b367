# Network ${name} as a CMake library. In your own CMakeLists.txt: add_subdirectory(this folder), then
# target_link_libraries(your_program PRIVATE ${name}). It is compiled with your toolchain file and your build type.
cmake_minimum_required(VERSION 3.13)
project(${name} VERSION ${version} LANGUAGES C)

add_library(${name} STATIC
% for source in sources:
  ${source}
% endfor
)
set_target_properties(${name} PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON)
target_include_directories(${name} PUBLIC include PRIVATE ${" ".join(folders)})
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  target_compile_options(${name} PRIVATE -O2)
endif()
if(NOT MSVC)
  target_compile_options(${name} PRIVATE -ffunction-sections -fdata-sections -ffp-contract=off)  # floats equal those of the reference
  target_link_libraries(${name} PUBLIC m)
endif()
