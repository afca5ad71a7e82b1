#!/usr/bin/env bash
# Trains on several GPUs: scripts/train_multi_gpu.sh --config-path FILE [--num-gpus N] [--spawn] [--port N] [--distributed-backend nccl|gloo]
# [--[no-]distributed-data-loading] and every other flag of `lockstep train`. All GPUs where --num-gpus is left out.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lockstep.sh"
exec "$lockstep" train "$@"
