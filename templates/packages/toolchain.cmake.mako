<%!
import re


def variables(text):
    """The variables of a Makefile."""
    return dict(re.findall(r"^(\w+) *:?= *(.*?) *$", text.replace("\\\n", " "), re.MULTILINE))
%>\
% if cross:
<%
made = variables(files["Makefile"])
compiler, *flags = made["QEMU_CC"].split()
link = made["QEMU_LINK"].replace("$(QEMU_CC)", made["QEMU_CC"])
%>\
# The compiler of the chip and its flags: cmake --toolchain this-file
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_C_COMPILER ${compiler})
set(CMAKE_C_FLAGS_INIT "${" ".join(flags)}")
set(CMAKE_C_LINK_EXECUTABLE "${link} <LINK_FLAGS> <OBJECTS> -o <TARGET> <LINK_LIBRARIES>")
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
% endif
