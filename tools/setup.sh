#!/usr/bin/env bash
# Installs what a build needs: system packages by apt where the user may, LibTorch and the CUDA compiler into .deps/.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/apt.sh

packages=(g++ make ccache python3 python3-venv libyaml-cpp-dev nlohmann-json3-dev libcli11-dev libfmt-dev libgtest-dev)
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
# A python3 or g++ that did not come from apt serves as well.
usable=()
for package in "${missing[@]}"; do
  case "$package" in
    g++) command -v g++ >/dev/null || usable+=("$package") ;;
    make) command -v make >/dev/null || usable+=("$package") ;;
    python3) command -v python3 >/dev/null || usable+=("$package") ;;
    python3-venv) python3 -c 'import ensurepip, venv' 2>/dev/null || usable+=("$package") ;;
    *) usable+=("$package") ;;
  esac
done
if [ ${#usable[@]} -gt 0 ]; then
  if ! as_root true; then
    echo "setup: these system packages are missing: ${usable[*]}"
    echo "setup: run this once, then start again:   sudo apt-get install -y ${usable[*]}"
    exit 3
  fi
  echo "setup: installing ${usable[*]}"
  as_root apt-get update -qq
  install_packages "${usable[@]}"
fi

# Tokenizers, chat templates and Parquet are Rust crates. Debian 13 packages a cargo that is new enough; Debian 12 packages one beside its old one.
export PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
least_cargo=1.85
new_enough() { [ -n "$1" ] && [ "$(printf '%s\n' "$least_cargo" "$1" | sort -V | head -n 1)" = "$least_cargo" ]; }
cargo_here() { cargo --version 2>/dev/null | awk '{print $2}' || true; }
candidate() { apt-cache policy "$1" 2>/dev/null | awk '/Candidate:/ {print $2}' | sed 's/[+~-].*//' || true; }
if ! new_enough "$(cargo_here)" && ! command -v rustup >/dev/null; then
  [ -n "$(candidate cargo)" ] || as_root apt-get update -qq || true
  for packages in "cargo rustc" "cargo-web rustc-web"; do
    if new_enough "$(candidate "${packages%% *}")" && as_root true; then
      echo "setup: installing $packages"
      # shellcheck disable=SC2086
      install_packages $packages
      break
    fi
  done
fi
if ! new_enough "$(cargo_here)"; then
  found=$(cargo_here)
  echo "setup: tokenizers are built with cargo $least_cargo or newer; here is ${found:-none}"
  echo "setup: install Rust from https://rustup.rs (it needs no root), then start again"
  exit 3
fi

# The stamp holds the pins, so a changed pin is installed and an unchanged one costs nothing.
stamp=.deps/installed
if ! cmp -s tools/requirements.txt "$stamp" 2>/dev/null; then
  [ -x .deps/bin/python ] || python3 -m venv .deps
  echo "setup: installing LibTorch, the CUDA compiler, cmake and ninja into .deps/ (about 5 GB, once)"
  .deps/bin/pip install --disable-pip-version-check --no-deps --require-hashes --progress-bar off -q -r tools/requirements.txt
  cp tools/requirements.txt "$stamp"
fi
