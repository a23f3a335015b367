<% P = name.upper() %>\
# Network ${name} for your own Makefile: include this file, compile <%text>$(</%text>${P}_SOURCES) with <%text>$(</%text>${P}_CFLAGS), and link with -lm.
# Programs that call the network need -I<%text>$(</%text>${P}_DIR)include alone.
${P}_DIR := <%text>$(dir $(lastword $(MAKEFILE_LIST)))</%text>
${P}_SOURCES := <%text>$(addprefix $(</%text>${P}_DIR), ${" ".join(sources)})
${P}_CFLAGS := -std=c11 -ffp-contract=off <%text>$(addprefix -I$(</%text>${P}_DIR),include ${" ".join(folders)})
