#!/usr/bin/env bash
# Asks how to train (all GPUs? how many? which config? which launcher?), keeps the answers, and starts: scripts/start-multi-gpu.sh [--again] [flags]
# --again starts with the answers given before.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lockstep.sh"
if [ "${1:-}" = --again ]; then shift; else "$lockstep" launch config; fi
exec "$lockstep" launch "$@"
