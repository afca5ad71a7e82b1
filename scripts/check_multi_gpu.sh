#!/usr/bin/env bash
# Checks step by step whether this machine can train on all its GPUs: scripts/check_multi_gpu.sh [--json] [flags of lockstep check]
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lockstep.sh"
exec "$lockstep" check "$@"
