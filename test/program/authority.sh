#!/bin/sh
# authority.sh - a moderated swarm: invited users join, others do not, and users removed from the
# list get no further token.
. "$(dirname "$0")/lib.inc"
processes=
trap 'kill $processes 2>/dev/null; wait; rm -rf "$work"' EXIT
cd "$work" || exit 1
case $POTLUCK in /*) ;; *) POTLUCK=$OLDPWD/$POTLUCK ;; esac

start() { # output, pattern that says it is there, command...
    out=$1 ready=$2; shift 2
    "$@" >"$out" 2>"$out.err" &
    processes="$processes $!"
    for _ in $(seq 1200); do
        grep -qE "$ready" "$out" "$out.err" && return
        sleep 0.1
    done
}
printed() { # pattern, command...
    want=$1; shift
    "$@" >log 2>&1
    grep -qE -- "$want" log
}
prints() { # what, pattern, command...
    what=$1; shift
    if again printed "$@"; then ok "$what"; else fail "$what: no '$want'"; head -n 5 log; fi
}

"$POTLUCK" authority --invite ann --allow list >ann.token
"$POTLUCK" authority --invite bob --allow list >bob.token
check "a secret of 64 digits" grep -qE '^[0-9a-f]{64}$' ann.token
check "is not in the list" sh -c '! grep -q "$(cat ann.token)" list'
refuses 1 "on the list already" "$POTLUCK" authority --invite ann --allow list
echo 'broken line here' >broken
refuses 1 "line 1" "$POTLUCK" authority --key k --allow broken --port 0
refuses 2 "--allow and --key (or --invite) are needed" "$POTLUCK" authority

printf '\100\0\0\0\0\0\0\0%-64s\0\0\0\0' '{"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}' >t.safetensors
start served '"event":"listening"' "$POTLUCK" authority --key key --allow list --port 0 --life 300 --json \
    --coordinator 1.2.3.4:31337
url=https://localhost:$(sed -n 's/.*"port":\([0-9]*\).*/\1/p' served)
check "secrets are nobody else's to read" sh -c '[ "$(stat -c %a key)" = 600 ] && [ "$(stat -c %a key.tls)" = 600 ]'
ann="--authority $url --authority-ca key.crt --token-file ann.token"
bob="--authority $url --authority-ca key.crt --token-file bob.token"
# shellcheck disable=SC2086
start a '"event":"joined"' "$POTLUCK" peer --json --listen /ip4/127.0.0.1/tcp/0 $ann
entry=$(sed -n 's/.*"multiaddr":"\([^"]*\)".*/\1/p' a)
# shellcheck disable=SC2086
{
    prints "an invited user writes" '"event":"stored"' "$POTLUCK" dht put k 7 --expires 600 --join "$entry" $bob --json
    prints "and another one reads" '"value":7' "$POTLUCK" dht get k --join "$entry" $ann --json
    prints "a peer without a token gets the reason" 'carries no access token' "$POTLUCK" dht get k --join "$entry"
    for verb in "get k" "put k 8" ping; do
        prints "and on which side, $verb" 'your side: .*access token \(--authority\)' "$POTLUCK" dht $verb --join "$entry"
    done
    prints "nor does the doctor get in" 'access token' "$POTLUCK" doctor --join "$entry" --quick --client-mode
    walks() { "$POTLUCK" conform --peer "$entry" $bob >walk 2>&1 || { grep '^FAIL' walk; tail -n 1 walk; return 1; }; }
    check "a walk through a peer, as a user" again walks
    prints "and without a token" 'FAIL .*access token' "$POTLUCK" conform --peer "$entry"
    page() { # what the page says at its end; more time if it is not that far
        for t in 3 9 27 60; do
            timeout "$t" "$POTLUCK" dash --join "$entry" --run nobody --port 0 --every 0.5 --export page "$@" >dash.out 2>&1
            grep -q "$wanted" page/api/state.json dash.out && return
        done
        return 1
    }
    wanted='No peer of this run' check "a page gets in" page $ann
    wanted='access token' check "and not without one" page
    check "which says on which side" grep -q 'your side: .*access token (--authority)' dash.out
    average() { "$POTLUCK" average --prefix p --tensors t.safetensors --timeout 1 --matchmaking-time 0.5 --join "$entry" "$@" 2>&1; }
    prints "so does averaging" 'access token' average
    prints "which finds nobody there, but gets in" 'found no group' average $ann
    cp log average
    check "nor does it get errors about tokens" sh -c '! grep "access token" average'
    head -c 64 /dev/zero | tr '\0' a >wrong.token
    refuses_again 1 "not on its list; your side: " "$POTLUCK" dht get k --join "$entry" --authority "$url" --authority-ca key.crt --token-file wrong.token
    refuses_again 1 "certificate.*; your side: give the authority.s certificate" "$POTLUCK" dht get k --join "$entry" --authority "$url" --token-file ann.token
    refuses_again 1 "no program answers there" "$POTLUCK" dht get k --join "$entry" --authority https://127.0.0.1:1 --authority-ca key.crt --token-file ann.token

    # Each file that can be wrong, and each invalid authority: one line with the file and the
    # side.
    wrong() { # words, options in place of those that are right
        words=$1; shift
        refuses 1 "$words" "$POTLUCK" dht get k --join "$entry" "$@"
    }
    wrong_there() { # the same where another program has to answer
        words=$1; shift
        refuses_again 1 "$words" "$POTLUCK" dht get k --join "$entry" "$@"
    }
    : >empty
    printf '\n' >blank
    printf 'ann %064d\n' 0 >its.line
    printf 'a\001b\n' >binary
    ca="--authority $url --authority-ca key.crt"
    wrong "token-file nosuch: No such file.*your side: it holds the secret" $ca --token-file nosuch
    wrong "token-file empty is empty; your side: it holds the secret" $ca --token-file empty
    wrong "token-file blank: its first line begins with a space or is empty; your side:" $ca --token-file blank
    wrong "token-file its.line: its first line has more than one word; your side:" $ca --token-file its.line
    wrong "token-file binary: byte 1 is not a character that a secret may contain; your side:" $ca --token-file binary
    wrong "token-file .: not a regular file; your side:" $ca --token-file .
    wrong "needs --token-file, too; your side:" $ca
    wrong "token-file needs an authority, and none is given; your side:" --token-file ann.token
    wrong "authority-ca nosuch: No such file.*your side:" --authority "$url" --authority-ca nosuch --token-file ann.token
    wrong "authority-ca empty: empty, no certificate; your side:" --authority "$url" --authority-ca empty --token-file ann.token
    wrong "authority-ca key: a private key, no certificate; your side:" --authority "$url" --authority-ca key --token-file ann.token
    wrong_there "your side: --authority must use the name in the authority.s certificate" --authority "https://127.0.0.1:${url##*:}" --authority-ca key.crt \
        --token-file ann.token
    wrong_there "your side: another program than an authority answers there" --authority \
        "https://localhost:$(echo "$entry" | sed 's,.*/tcp/\([0-9]*\)/.*,\1,')" --authority-ca key.crt --token-file ann.token
    prints "the doctor names file and side, too" '^ +-> your side: it holds the secret' "$POTLUCK" doctor --quick --join "$entry" $ca --token-file empty
    cp key k2 && cp key.tls k2.tls && echo x >k2.crt && cp key k3 && cp key.crt k3.crt && cp key k3.tls
    refuses 1 "k2.crt: no certificate (PEM)" "$POTLUCK" authority --key k2 --allow list --port 0
    refuses 1 "k3.crt is the certificate of another key than that of k3.tls" "$POTLUCK" authority --key k3 --allow list --port 0
    refuses 1 "key empty: RSA key: no private key" "$POTLUCK" authority --key empty --allow list --port 0
    refuses 1 "allow nosuch: No such file.*--invite" "$POTLUCK" authority --key key9 --allow nosuch --port 0
    check "and makes no keys for it" sh -c '[ ! -e key9 ] && [ ! -e key9.crt ] && [ ! -e key9.tls ]'
    if command -v python3 >/dev/null; then
        start silent '^[0-9]' python3 -c 'import socket, time
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); print(s.getsockname()[1], flush=True); time.sleep(600)'
        prints "an authority that says nothing is waited for with a word" 'has not answered for [0-9]+ s; waiting' \
            timeout 60 "$POTLUCK" dht get k --join "$entry" --authority "https://localhost:$(cat silent)" --authority-ca key.crt --token-file ann.token
        cp log waited
        check "and then whose side that is" grep -q "owner's side, if --authority is right: it is off or frozen" waited
    fi
    ahead() { # s: the program's clock
        [ "${POTLUCK#*san/}" = "$POTLUCK" ] && cc -x c -shared -fPIC -o clock.so - 2>/dev/null <<END
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *t)
{
    int rc = (int)syscall(SYS_clock_gettime, id, t);
    if (id == CLOCK_REALTIME) t->tv_sec += $1;
    return rc;
}
END
    }
    if ahead 3600; then
        LD_PRELOAD=./clock.so wrong_there "returned an invalid token: access token: expired at 20.* UTC, 3[0-9]*.[0-9] s ago; the authority.s owner.s side; yours, if your clock" \
            $ann
    fi
    if ahead 120; then
        LD_PRELOAD=./clock.so prints "a clock two minutes ahead" 'the bootstrap peer does not accept us: your side, if others can join: your clock is wrong' \
            "$POTLUCK" dht get k --join "$entry" $ann
    fi
    refuses 2 "http:" "$POTLUCK" dht get k --join "$entry" --authority "http:${url#https:}" --token-file ann.token
    refuses_join() { # what, words, options
        what=$1 words=$2; shift 2
        prints "$what" "the bootstrap peer does not accept us: $words" "$POTLUCK" dht get k "$@"
    }
    "$POTLUCK" authority --invite ann --allow list2 >ann2.token
    start served2 '"event":"listening"' "$POTLUCK" authority --key key2 --allow list2 --port 0 --json
    url2=https://localhost:$(sed -n 's/.*"port":\([0-9]*\).*/\1/p' served2)
    refuses_join "another authority's token" "your side: this swarm's access tokens come from another authority" \
        --join "$entry" --authority "$url2" --authority-ca key2.crt --token-file ann2.token
    start open '"event":"joined"' "$POTLUCK" peer --json --listen /ip4/127.0.0.1/tcp/0
    refuses_join "a token where none is asked for" 'your side: this swarm uses no access tokens' \
        --join "$(sed -n 's/.*"multiaddr":"\([^"]*\)".*/\1/p' open)" $ann
    grep -v '^bob ' list >shorter && mv shorter list
    refuses_again 1 "not on its list" "$POTLUCK" dht get k --join "$entry" $bob
    prints "the others stay" '"value":7' "$POTLUCK" dht get k --join "$entry" $ann --json
    echo nonsense >>list
    prints "a broken new list changes nothing" '"value":7' "$POTLUCK" dht get k --join "$entry" $ann --json
}
for _ in $(seq 600); do grep -q 'allowlist, line' served.err && break; sleep 0.1; done
check "and says so" grep -q 'allowlist, line' served.err
if command -v curl >/dev/null; then
    prints "other requests are refused" 404 curl -s -o /dev/null -w '%{http_code}' --cacert key.crt "$url/"
    prints "and other methods" 405 curl -s -o /dev/null -w '%{http_code}' --cacert key.crt "$url/api/experiments/join"
    prints "a body that makes no sense" 400 curl -s -o /dev/null -w '%{http_code}' --cacert key.crt -X PUT \
        -H "Authorization: Bearer $(cat ann.token)" -d '{"experiment_join_input": 5}' "$url/base/api/experiments/join?model_name=m"
    head -c 20000 /dev/zero | tr '\0' x >long
    prints "a body that is too long" 413 curl -s -o /dev/null -w '%{http_code}' --cacert key.crt -X PUT \
        -H "Authorization: Bearer $(cat ann.token)" -d @long "$url/api/experiments/join"
fi
finish
