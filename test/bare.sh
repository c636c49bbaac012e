#!/bin/sh
# bare.sh DIR [COMMAND] - `make test` (or COMMAND) on a Debian that has nothing but git, make and ca-certificates, as a newcomer's
# machine may: a chroot in DIR, made by debootstrap unless it is there. The tree in it is a clone of the last commit, so what is
# not committed is not tested. Needs root; SUITE and MIRROR choose another Debian. Mounts end with the script.
set -eu
root=$1 command=${2:-make test}
say() { echo "bare: $1" >&2; }
[ "$(id -u)" = 0 ] || { say "a chroot needs root: sudo make test-bare"; exit 1; }
command -v debootstrap >/dev/null || { say "debootstrap is missing: apt-get install debootstrap"; exit 1; }

# Two runs in one chroot would delete each other's tree: the lock is held until the last process of this run has ended.
mkdir -p "$(dirname "$root")"
exec 9>"$root.lock"
flock -n 9 || { say "another run is at work in $root (BARE=DIR chooses another folder)"; exit 1; }

# Made under another name first: half a system is none.
if [ ! -x "$root/usr/bin/git" ]; then
    rm -rf "$root.new"
    mkdir -p "$root.new"
    debootstrap --variant=minbase --include=git,make,ca-certificates "${SUITE:-bookworm}" "$root.new" \
        "${MIRROR:-http://deb.debian.org/debian}" >"$root.log" 2>&1 || { tail -n 3 "$root.log" >&2; say "debootstrap: see $root.log"; exit 1; }
    mv "$root.new" "$root"
fi
root=$(cd "$root" && pwd)
# What this machine's network asks for: names, apt's proxy, pip's index, and the authorities by which a company's proxy signs.
for file in /etc/resolv.conf /etc/apt/apt.conf /etc/pip.conf; do
    [ ! -f "$file" ] || cat "$file" >"$root$file"
done
# Debian's installer writes it, debootstrap does not.
[ -f "$root/etc/hosts" ] || printf '127.0.0.1 localhost\n::1 localhost\n' >"$root/etc/hosts"
find /usr/local/share/ca-certificates -name '*.crt' -exec cp {} "$root/usr/local/share/ca-certificates" \;
chroot "$root" update-ca-certificates >"$root.log" 2>&1 || { tail -n 3 "$root.log" >&2; say "update-ca-certificates: see $root.log"; exit 1; }

rm -rf "$root/root/potluck"
git clone -q --no-hardlinks "$(git rev-parse --show-toplevel)" "$root/root/potluck"

# In namespaces of its own: no mount and no process outlives it. `ip netns exec` needs a root that is a mount point.
exec unshare --mount --pid --fork --kill-child sh -c '
    mount --bind "$0" "$0" && mount -t proc proc "$0/proc" && mount -t sysfs -o ro sysfs "$0/sys" && mount --rbind /dev "$0/dev" && mount -t tmpfs tmpfs "$0/tmp" &&
    exec chroot "$0" /usr/bin/env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive \
        sh -c "cd /root/potluck && $1"' "$root" "$command"
