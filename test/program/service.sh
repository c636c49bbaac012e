#!/bin/sh
# service.sh - the bootstrap peer's systemd unit and container file: systemd understands the unit, and
# its command line works as an unprivileged user with nothing to write to but the state directory.
# What needs systemd as process 1, or a container engine, is skipped where these are missing.
. "$(dirname "$0")/lib.inc"
peers=
trap 'kill $peers 2>/dev/null; wait; rm -rf "$work"' EXIT
unit=cmd/peer/service/potluck-peer.service
container=cmd/peer/service/Containerfile
program=$(readlink -f "$POTLUCK")
line=$(sed -n 's/^ExecStart=//p' $unit)

# --- systemd's own checks

if command -v systemd-analyze >/dev/null; then
    mkdir "$work/units"
    sed "s,^ExecStart=/usr/bin/potluck,ExecStart=$program,; /^Documentation/d" $unit >"$work/units/potluck-peer.service"
    systemd-analyze verify --man=no "$work/units/potluck-peer.service" >"$work/verify" 2>&1
    check "systemd finds no fault with the unit" sh -c '! grep potluck-peer "$0"' "$work/verify"
    if systemd-analyze security --offline=true --threshold=20 "$work/units/potluck-peer.service" >"$work/security" 2>&1 ||
        ! grep -q 'unrecognized option' "$work/security"; then
        check "and calls its exposure at most 2.0 of 10" sh -c 'systemd-analyze security --offline=true --threshold=20 "$0" >/dev/null' \
            "$work/units/potluck-peer.service"
    fi
else
    echo "skip systemd's view of the unit: systemd-analyze is not installed"; skipped=$((skipped + 1))
fi

# --- the command line, as the unit runs it

# shellcheck disable=SC2016
check "options come from variables" [ "$(echo "$line" | grep -o '\$[A-Z_{]*[A-Z_]*}*' | sort | tr '\n' ' ')" = \
    '$POTLUCK_OPTIONS ${POTLUCK_LISTEN} ${STATE_DIRECTORY} ' ]
for option in $(echo "$line" | grep -oE -e '--[a-z-]+'); do
    check "the program has $option" sh -c '"$0" help peer --list | grep -q "^$1	"' "$POTLUCK" "$option"
done
command=$(echo "$line" | sed 's,^/usr/bin/potluck,$program,')
state=$work/state
mkdir -m 700 "$state"
# Nobody may read the build folder of a private home: a copy for everybody.
mkdir -p "$work/bin" && cp "$program" "$(dirname "$program")"/libpl_fast.so "$work/bin/" && chmod -R a+rX "$work" && chmod 700 "$state"
limited=
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
    chown 65534:65534 "$state"
    limited='setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all'
    # As ProtectSystem=strict: all is read-only but the state directory.
    if unshare --mount sh -c 'mount --make-rprivate / && mount --bind "$0" "$0" && mount -o remount,ro,bind /' "$state" 2>/dev/null; then
        limited="unshare --mount sh -c 'mount --make-rprivate /; mount --bind \"\$0\" \"\$0\"; mount -o remount,ro,bind /; exec \"\$@\"' $state $limited"
    else
        echo "skip the read-only system: mounting is not allowed"; skipped=$((skipped + 1))
    fi
else
    echo "skip the unprivileged user: not run by root, or setpriv is not installed"; skipped=$((skipped + 1))
fi
start() { # output
    (
        ulimit -n 16384 2>/dev/null
        umask 077
        export program="$work/bin/potluck" POTLUCK_LISTEN=/ip4/127.0.0.1/tcp/0 STATE_DIRECTORY="$state" POTLUCK_OPTIONS="--run service --json"
        eval "exec $limited $command"
    ) >"$1" 2>"$1.err" &
    last=$!
    peers="$peers $last"
    for _ in $(seq 300); do grep -q '"listening"' "$1" && return; sleep 0.1; done
    cat "$1.err"
    return 1
}
id_of() { sed -n 's,.*"event": *"listening".*/p2p/\([A-Za-z0-9]*\).*,\1,p' "$1" | head -n 1; }
check "it starts" start "$work/first"
check "the state directory has the identity, for its owner alone" [ "$(stat -c %a "$state/identity")" = 400 ]
status() { kill -TERM $last; wait $last; }
status; ended=$?
check "SIGTERM ends it well" [ $ended -eq 0 ]
check "it starts again" start "$work/second"
check "others find it under the same peer ID" [ -n "$(id_of "$work/first")" -a "$(id_of "$work/first")" = "$(id_of "$work/second")" ]
status
if [ -n "$limited" ]; then
    chmod 500 "$state" && rm -f "$state/identity" && chown 0:0 "$state"
    eval "POTLUCK_LISTEN=/ip4/127.0.0.1/tcp/0 STATE_DIRECTORY=$state POTLUCK_OPTIONS= program=$work/bin/potluck; $limited $command" >"$work/log" 2>&1
    check "a state directory that it cannot write is one line" [ "$(wc -l <"$work/log")" -eq 1 ]
fi

# --- the container file

check "the container runs the same options" sh -c '
    entry=$(sed -n "s/^ENTRYPOINT //p" "$0" | tr -d "[],\"")
    for o in $(echo "$entry" | grep -oE -e "--[a-z-]+"); do grep "^ExecStart" "$1" | grep -q -e "$o " || exit 1; done' $container $unit
for target in $(sed -n 's/^RUN make deps && make \([a-z]*\).*/\1/p' $container); do
    check "its target '$target' exists" sh -c 'grep -q "^$0:" Makefile */*.mk */*/*.mk' "$target"
done
if command -v podman >/dev/null || docker info >/dev/null 2>&1; then
    engine=$(command -v podman || command -v docker)
    check "the container is built" "$engine" build -q -t potluck-peer-test -f $container .
else
    echo "skip the container: no container engine runs here"; skipped=$((skipped + 1))
fi
finish
