#!/usr/bin/env bash
# Proves that a fresh Debian needs nothing but the two commands of the README: in a bare chroot of each release a clone is built and trains 20 steps.
# Then its wheel goes into an empty environment, with the torch that pip brings, and with the checkout gone: it trains, serves the page and is a package.
#   tools/fresh/debian.sh [RELEASE...]   bookworm and trixie (Debian 12 and 13) where none is given; needs root. Some 25 minutes and 12 GB a release.
#   FRESH_CCACHE=DIR   a cache of compiled files that is shown to the chroot; without it everything is compiled
#   FRESH_WHEEL=FILE   nothing is compiled: this wheel is tried
set -euo pipefail
cd "$(dirname "$0")/../.."
source_folder=$PWD
. tools/fresh/chroot.sh
releases=("$@")
[ ${#releases[@]} -gt 0 ] || releases=(bookworm trixie)

leave() {
  umount -l "$1/root/.cache/ccache" 2>/dev/null || true
  clean_root "$1"
}

try() {
  local release=$1 root
  root=$(mktemp -d "${TMPDIR:-/var/tmp}/lockstep-fresh-$release-XXXX")
  # shellcheck disable=SC2064
  trap "leave '$root'" EXIT
  echo "fresh: $release into $root"
  local start=$SECONDS
  if [ -n "${FRESH_WHEEL:-}" ]; then
    make_root "$release" "$root" ca-certificates,python3,python3-venv
    cp "$FRESH_WHEEL" "$root/root/"
  else
    make_root "$release" "$root" ca-certificates,git,make
    make_wheel "$release" "$root"
  fi
  cp tools/fresh/wheel.sh "$root/root/"
  in_root "$root" bash -ec 'bash /root/wheel.sh /root/*.whl'
  echo "fresh: $release is good ($((SECONDS - start)) s)"
  leave "$root"
  trap - EXIT
}

# The two commands, and a wheel in /root with the checkout gone.
make_wheel() {
  local release=$1 root=$2 start=$SECONDS
  git clone -q "$source_folder" "$root/root/lockstep"
  if [ -n "${FRESH_CCACHE:-}" ]; then
    mkdir -p "$root/root/.cache/ccache"
    mount --bind "$FRESH_CCACHE" "$root/root/.cache/ccache"
  fi
  in_root "$root" bash -ec 'cd /root/lockstep && make && make train TRAIN_ARGS="--max-steps 20" && make wheel'
  echo "fresh: $release builds and trains ($((SECONDS - start)) s)"
  in_root "$root" bash -ec 'mv /root/lockstep/dist/*.whl /root && rm -rf /root/lockstep'
}
for release in "${releases[@]}"; do (try "$release"); done
