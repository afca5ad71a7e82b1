#!/usr/bin/env bash
# Trains on every NVIDIA GPU of this machine, whatever CUDA_VISIBLE_DEVICES says: scripts/run_nvidia_all.sh -f FILE [flags of lockstep train]
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lockstep.sh"
unset CUDA_VISIBLE_DEVICES
if ! command -v nvidia-smi >/dev/null && ! [ -e /proc/driver/nvidia/version ]; then
  echo "There is no NVIDIA driver here. '$lockstep check' says what is missing; without a GPU use '$lockstep train --device cpu'." >&2
  exit 3
fi
exec "$lockstep" train --device cuda "$@"
