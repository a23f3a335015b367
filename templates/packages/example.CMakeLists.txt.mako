<%!
import re
import shlex


def variables(text):
    """The variables of a Makefile."""
    return dict(re.findall(r"^(\w+) *:?= *(.*?) *$", text.replace("\\\n", " "), re.MULTILINE))


def quote(words):
    """Words of a shell as those of CMake."""
    return " ".join(f'"{word}"' if " " in word else word for word in shlex.split(words))
%>\
<%
made = variables(files["Makefile"])
folder = "runtime/board/boards/"
found = {path.split("/")[3]: variables(text) for path, text in files.items() if path.startswith(folder) and path.endswith("/board.mk")}
boards = {board: given for board, given in found.items() if target in given["BOARD_TARGETS"].split()}
root = "${PACKAGE}"
%>\
# A program with network ${name}. For this machine:
#   cmake -S . -B build && cmake --build build --target run
% if cross:
# For the chip under QEMU, the same with --toolchain ../toolchain.cmake behind cmake -S . -B build.
% endif
% if boards:
# For a board, with -DBOARD=NAME as well: ${", ".join(boards)}.
% endif
# A copy elsewhere is told where the package lies: -DPACKAGE=FOLDER, and --toolchain FOLDER/toolchain.cmake.
cmake_minimum_required(VERSION 3.13)
project(${name}_example C)
set(PACKAGE "<%text>${CMAKE_CURRENT_SOURCE_DIR}</%text>/.." CACHE PATH "Folder of the package that deeploy wrote")
get_filename_component(PACKAGE "<%text>${PACKAGE}</%text>" ABSOLUTE)
add_subdirectory(<%text>${PACKAGE}</%text> <%text>${CMAKE_CURRENT_BINARY_DIR}</%text>/network)
add_executable(firmware main.c)
set_target_properties(firmware PROPERTIES C_STANDARD 11)
target_link_libraries(firmware PRIVATE ${name})
if(NOT CMAKE_CROSSCOMPILING)
  add_custom_target(run COMMAND firmware)
  return()
endif()
% if cross:

set(BOARD "" CACHE STRING "Board of the program; none: it runs under QEMU")
if(BOARD STREQUAL "")
  set(LAYOUT ${quote(made["QEMU_LAYOUT"])})
  set(SOURCES ${root}/runtime/qemu/semihost.c)
  target_compile_definitions(firmware PRIVATE SEMIHOSTING)
  add_custom_target(run COMMAND ${made["QEMU_RUN"]} -display none -monitor none -serial null
    -semihosting-config enable=on,target=native -kernel $<TARGET_FILE:firmware>)
% for board, given in boards.items():
elseif(BOARD STREQUAL "${board}")
  set(LAYOUT ${quote(given["BOARD_LAYOUT"].replace("$(QEMU_LAYOUT)", made["QEMU_LAYOUT"]))})
  set(SOURCES ${root}/runtime/board/clock.c ${" ".join(f"{root}/{folder}{board}/{source}" for source in given["BOARD_SOURCES"].split())}\
${"".join(f" {root}/{source}" for source in given.get("BOARD_RUNTIME", "").split())})
  target_compile_definitions(firmware PRIVATE BOARD BOARD_BAUD=115200 ${given.get("BOARD_DEFINES", "").replace("-D", "")})
% if "BOARD_OPENOCD" in given:
  add_custom_target(load COMMAND openocd ${given["BOARD_OPENOCD"]} -c "program $<TARGET_FILE:firmware> verify reset exit")
% endif
% endfor
else()
  message(FATAL_ERROR "BOARD=<%text>${BOARD}</%text> is unknown. Use one of: ${", ".join(boards)}; or none, for QEMU.")
endif()
# Where flash and memory lie: the linker script with the numbers of the board. From reset to main: start.c.
set(SCRIPT <%text>${CMAKE_CURRENT_BINARY_DIR}</%text>/link.ld)
execute_process(COMMAND <%text>${CMAKE_C_COMPILER}</%text> -E -P -x c <%text>${LAYOUT}</%text> ${root}/runtime/qemu/link.ld -o <%text>${SCRIPT}</%text> COMMAND_ERROR_IS_FATAL ANY)
target_sources(firmware PRIVATE ${root}/runtime/qemu/start.c <%text>${SOURCES}</%text>)
target_include_directories(firmware PRIVATE ${root}/runtime/qemu ${root}/runtime/board ${root}/runtime/board/boards)
target_compile_options(firmware PRIVATE -O2)
target_link_options(firmware PRIVATE -nostartfiles -Wl,--no-warn-rwx-segments -Wl,--gc-sections -T <%text>${SCRIPT}</%text>)
% endif
