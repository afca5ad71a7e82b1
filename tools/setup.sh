#!/usr/bin/env bash
# Installs what a build needs: system packages by apt where the user may, LibTorch and the CUDA compiler into .deps/.
set -euo pipefail
cd "$(dirname "$0")/.."

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
  install="apt-get install -y ${usable[*]}"
  if [ "$(id -u)" = 0 ]; then
    echo "setup: installing ${usable[*]}"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${usable[@]}" >/dev/null
  elif sudo -n true 2>/dev/null; then
    echo "setup: installing ${usable[*]} (sudo)"
    sudo -n apt-get update -qq && sudo -n env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${usable[@]}" >/dev/null
  else
    echo "setup: these system packages are missing: ${usable[*]}"
    echo "setup: run this once, then start again:   sudo $install"
    exit 3
  fi
fi

# Tokenizers and chat templates are Rust crates, which need a newer cargo than some systems package (Debian 12 has 1.63).
export PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
least_cargo=1.85
new_enough() { [ -n "$1" ] && [ "$(printf '%s\n' "$least_cargo" "$1" | sort -V | head -n 1)" = "$least_cargo" ]; }
cargo_here() { cargo --version 2>/dev/null | awk '{print $2}' || true; }
if [ -z "$(cargo_here)" ]; then
  packaged=$(apt-cache policy cargo 2>/dev/null | awk '/Candidate:/ {print $2}' | sed 's/[+~-].*//' || true)
  if new_enough "$packaged" && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }; then
    echo "setup: installing cargo $packaged"
    $([ "$(id -u)" = 0 ] || echo sudo -n) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq cargo >/dev/null
  fi
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
  .deps/bin/pip install --disable-pip-version-check --no-deps --progress-bar off -q -r tools/requirements.txt
  cp tools/requirements.txt "$stamp"
fi
