# Sourced: bare systems of Debian in a folder, by debootstrap, as root. make_root RELEASE FOLDER [PACKAGES], in_root FOLDER COMMAND..., clean_root FOLDER
. "$(dirname "${BASH_SOURCE[0]}")/../apt.sh"

make_root() {
  local release=$1 root=$2 packages=${3:-ca-certificates} mirror
  [ "$(id -u)" = 0 ] || { echo "a chroot needs root" >&2; return 3; }
  command -v debootstrap >/dev/null || { as_root apt-get update -qq && install_packages debootstrap; }
  # The mirror that this machine uses itself.
  mirror=$(apt-get indextargets --format '$(SITE)' | grep '/debian$' | head -n 1)
  debootstrap --variant=minbase --include="$packages" "$release" "$root" "$mirror" >"$root.log" 2>&1 || { tail -n 20 "$root.log"; return 1; }
  rm -f "$root.log"
  chmod 755 "$root" # apt and other users look into it
  {
    echo "deb $mirror $release main"
    echo "deb $mirror $release-updates main"
    echo "deb $mirror-security $release-security main"
  } >"$root/etc/apt/sources.list"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  # A machine behind a proxy of its own trusts a certificate of its own; so must the chroot.
  cp -rL --remove-destination /etc/ssl/certs/. "$root/etc/ssl/certs/" # links in there lead out of the chroot
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  mount --make-rslave "$root/dev" # or taking it away again would take it from this machine too
}

# With nothing of this machine's environment but the way to the network.
in_root() {
  local root=$1 variables=()
  shift
  mapfile -t variables < <(env | grep -E '^(SSL_CERT_FILE|NODE_EXTRA_CA_CERTS|CARGO_HTTP_CAINFO|PIP_CERT|PIP_DEFAULT_TIMEOUT|https?_proxy|no_proxy)=' || true)
  chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 "${variables[@]}" "$@"
}

clean_root() {
  umount -l "$1/dev" "$1/proc" 2>/dev/null || true
  rm -rf --one-file-system "$1"
}
