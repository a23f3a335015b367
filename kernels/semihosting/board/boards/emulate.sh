# emulate.sh PORT PROGRAM EMULATOR...: starts an emulator whose serial line is a terminal, and makes PORT a link to that. The one
# that PORT belonged to before is ended. The emulator's number is in PORT.pid. It
# runs until its program ends it, as those of QEMU's boards do when nothing came for half a minute.
set -e
port=$1 program=$2
shift 2
test ! -e "$port" -o -L "$port" || { echo "error: $port is there, and no emulator's" >&2; exit 1; }
test ! -f "$port.pid" || kill "$(cat "$port.pid")" 2>/dev/null || true
rm -f "$port" "$port.pid"
said=$("$@" -display none -monitor none $BEFORE -semihosting-config enable=on,target=native -serial pty -daemonize -pidfile "$port.pid" -kernel "$program" </dev/null 2>&1)
ln -s "$(echo "$said" | sed -n 's/.*redirected to \([^ ]*\).*/\1/p')" "$port"
