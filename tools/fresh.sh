#!/usr/bin/env bash
# Proves that a fresh Debian needs nothing but the two commands of the README: in a bare chroot of each release a clone is built and trains 20 steps.
# Then its wheel goes into an empty environment, with the torch that pip brings, and trains there with the checkout gone.
#   tools/fresh.sh [RELEASE...]   bookworm and trixie (Debian 12 and 13) where none is given; needs root. Some 25 minutes and 12 GB a release.
set -euo pipefail
cd "$(dirname "$0")/.."
source_folder=$PWD
[ "$(id -u)" = 0 ] || { echo "fresh: a chroot needs root"; exit 3; }
. tools/apt.sh
command -v debootstrap >/dev/null || { as_root apt-get update -qq; install_packages debootstrap; }
releases=("$@")
[ ${#releases[@]} -gt 0 ] || releases=(bookworm trixie)
# The mirror that this machine uses itself.
mirror=$(apt-get indextargets --format '$(SITE)' | grep '/debian$' | head -n 1)

clean() {
  umount -l "$1/dev" "$1/proc" 2>/dev/null || true
  rm -rf --one-file-system "$1"
}

try() {
  local release=$1 root
  root=$(mktemp -d "${TMPDIR:-/var/tmp}/lockstep-fresh-$release-XXXX")
  # shellcheck disable=SC2064
  trap "clean '$root'" EXIT
  echo "fresh: $release into $root"
  debootstrap --variant=minbase --include=ca-certificates,git,make "$release" "$root" "$mirror" >"$root.log" 2>&1 || { tail -n 20 "$root.log"; return 1; }
  {
    echo "deb $mirror $release main"
    echo "deb $mirror $release-updates main"
    echo "deb $mirror-security $release-security main"
  } >"$root/etc/apt/sources.list"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  # A machine behind a proxy of its own trusts a certificate of its own; so must the chroot.
  cp -rL --remove-destination /etc/ssl/certs/. "$root/etc/ssl/certs/"  # links in there lead out of the chroot
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  mount --make-rslave "$root/dev"  # or taking it away again would take it from this machine too
  git clone -q "$source_folder" "$root/root/lockstep"
  local start=$SECONDS
  chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    $(env | grep -E '^(SSL_CERT_FILE|CARGO_HTTP_CAINFO|PIP_CERT|https?_proxy|no_proxy)=' || true) \
    bash -ec 'cd /root/lockstep && make && make train TRAIN_ARGS="--max-steps 20" && make wheel
      mv dist/*.whl /root && cd /root && rm -rf lockstep && python3 -m venv env && env/bin/pip install -q *.whl
      env/bin/lockstep --version --verbose | head -n 6 && env/bin/lockstep train -f nano --max-steps 20
      env/bin/python -c "import lockstep; print(lockstep.attach(next(__import__(\"pathlib\").Path(\"runs\").iterdir())).generate(\"Once\", max_tokens=8))"'
  echo "fresh: $release is good ($((SECONDS - start)) s)"
  rm -f "$root.log"
  clean "$root"
  trap - EXIT
}
for release in "${releases[@]}"; do (try "$release"); done
