#!/usr/bin/env bash
# Trains on every AMD GPU of this machine: scripts/run_amd_all.sh -f FILE [flags of lockstep train]
# Sets what ROCm needs on cards that it does not list by itself. HSA_OVERRIDE_GFX_VERSION=10.3.0 fits RDNA 2, 11.0.0 RDNA 3.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lockstep.sh"
unset HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES
export HSA_FORCE_FINE_GRAIN_PCIE="${HSA_FORCE_FINE_GRAIN_PCIE:-1}" HSA_ENABLE_SDMA="${HSA_ENABLE_SDMA:-0}"
[ -z "${HSA_OVERRIDE_GFX_VERSION:-}" ] || export HSA_OVERRIDE_GFX_VERSION
missing=()
[ -e /dev/kfd ] || missing+=("the kernel driver amdgpu with its compute part (/dev/kfd)")
[ -e /opt/rocm ] || command -v rocminfo >/dev/null || missing+=("ROCm (/opt/rocm)")
missing+=("a ROCm build of lockstep: its kernels and collectives are written for CUDA and NCCL (lockstep explain LS-214)")
echo "AMD GPUs cannot be used. What is missing here:" >&2
printf '  - %s\n' "${missing[@]}" >&2
echo "Train on NVIDIA GPUs (scripts/run_nvidia_all.sh), or on this machine's CPU: $(printf '%q ' "$lockstep" train --device cpu "$@")" >&2
exit 3
