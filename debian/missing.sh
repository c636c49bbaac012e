#!/bin/sh
# missing.sh [-t SECONDS] PACKAGE ... - installs those of Debian's packages that are missing, where
# it may; otherwise says the one line to type. With -t, fetching them ends after so long. Unpacking
# does not: a package half unpacked is worse than a late one.
end=
[ "$1" = -t ] && { end=$(($(date +%s) + $2)); shift 2; }
missing=
for p in "$@"; do
    dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ]; then su=; elif sudo -n true 2>/dev/null; then su=sudo; else su=no; fi
if [ "$su" = no ] || ! command -v apt-get >/dev/null; then
    echo "missing packages; install them with:  sudo apt-get install$missing"
    exit 1
fi
apt() { $su ${end:+timeout -k 5 $((end > $(date +%s) ? end - $(date +%s) : 1))} env DEBIAN_FRONTEND=noninteractive apt-get -qq "$@"; }
echo "installing:$missing"
apt update && apt install -y --no-install-recommends --download-only $missing >/dev/null && end= &&
    apt install -y --no-install-recommends $missing >/dev/null ||
    { echo "could not install; try:  apt-get install$missing"; exit 1; }
