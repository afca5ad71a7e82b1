#!/usr/bin/env bash
# Trains under torchrun, for clusters whose tooling expects it: scripts/torchrun.sh [torchrun flags] -- -f models/nano.yaml [flags]
# Without this script nothing is lost: `lockstep train` starts a rank on every GPU by itself.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lockstep.sh"
command -v torchrun >/dev/null || { echo "torchrun is not on PATH: it comes with torch. '$lockstep train' needs no launcher." >&2; exit 3; }
launcher=()
while [ $# -gt 0 ] && [ "$1" != "--" ]; do
  launcher+=("$1")
  shift
done
[ $# -gt 0 ] && shift
[ ${#launcher[@]} -gt 0 ] || launcher=(--standalone --nproc-per-node=gpu)
exec torchrun --no-python "${launcher[@]}" "$lockstep" train "$@"
