# Sourced by the scripts beside it: sets `lockstep` to the program. LOCKSTEP names one, else a build of this checkout, else the one on PATH.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
lockstep=${LOCKSTEP:-}
[ -n "$lockstep" ] || { [ -x "$root/build/bin/lockstep" ] && lockstep=$root/build/bin/lockstep; }
[ -n "$lockstep" ] || lockstep=$(command -v lockstep || true)
if [ -z "$lockstep" ]; then
  echo "lockstep is not built yet: run 'make build' in $root, or set LOCKSTEP to the program." >&2
  exit 3
fi
