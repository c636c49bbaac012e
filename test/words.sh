#!/bin/sh
# words.sh - code, comments, help and documents use the words of PyTorch, hivemind, libp2p, BLAS and
# CUDA. A private word that was replaced once does not come back, in any file or symbol.
cd "$(dirname "$0")/.." || exit 1

places="README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md Makefile cmd cuda data debian fast net notebooks paper ref runtime test"

# A private word, and the field's word for it.
words='
liars?              Byzantine peer
wish(es|ed)?        request
referees?           verifier
attendance          liveness
checkups?           preflight check
remarks?            warning, comment
entry peers?        initial peer, bootstrap peer
misfits?            mismatch
lonely              alone
doors?              bootstrap peer
door-?keepers?      bootstrap peer
stairs?             step table
pitch               stride
painters?           sampler
gallery             reference images
learners?           trainer, collaborative optimizer
aside               delayed, in the background
beside              overlapped; next to, with
who(m|m?ever)       the noun that is meant
nobody can call     behind NAT, not publicly reachable
matrix units?       tensor core
first cache         L1
second cache        L2
inside\.h           internal.h
lanes\.h            simd.inc
[a-z]*(\.|->)chance  random (a random source)
[a-z]*->room          capacity
[by]\.room           capacity, send_budget
(size_t|leaf|has|make|set)[ _]room  capacity
gain, offset        weight, bias
(M,3E\)|d\),) turned  rotated
is_hidden           is_behind_nat
averager_hidden     averager_nat
dht_look[a-z_]*     run_records
settle_wait         complete_wait
peer_help[a-z_]*    peer_auxiliary
(upload|preflight|golden|on)_tell  report, notify
[a-z]+_told         reported
keepers?            owner
ALLREDUCE_EXCHANGING  ALLREDUCE_REDUCING
part->owner         reducer
who was there       the peers found
(has|have) to be theirs  use their
(is|are) no (JSON|number|text|map|tuple|opcode|peer|peer ID|IP address|RSA key|UTF-8)  is not a
(that|what) (is|are) none  invalid, unknown
is none from  is not one of
goes on from it     continues from it
as the original     go-libp2p, hivemind 1.1.12, DALLE-pytorch
original.s figures?  the figures of go-libp2p, of hivemind
plan(\.|->)exchange  allreduce_bits
exchange (with peers|alone)  all-reduce
s of it exchange    all-reduce
lanesOf             shardsOf
(in|of the|batch) lanes, each  shards
multiaddr_reach     multiaddr_scope
enum reach          address_scope
REACH_(LOOPBACK|PRIVATE|PUBLIC)  SCOPE
(dash_folder|probe|collaboration)_look  poll
ROOM=[a-z]*         FOLDER=
--room              --folder
kept activations    saved activations
turned (matrix|matrices|weights?)  transposed
(a kernel|each kernel) turned|turn_weights  rotated
[*&]told|told(->|_by)  reported
report_reach        report_reachability
the channel (until|has)|Takes over the channel  stream
(leave|makes?) room  space, capacity
tied table          embedding
buffer_chain        buffer_queue
chain of buffers    buffer queue
statistics of the optimizer  optimizer state, moments
held[- ]without     excluded
(of|at least|at most|after|with|until|made|only|first) so (many|much)  the number, this many
for so long         for this long
for ever            forever, without limit, permanently
all the same        nevertheless, still
in case that        in case
would else          would otherwise
(is|are) none of (ours|its)  belongs to no one of ours
look(s|ing)?\([a-z]*  poll, check, read
struct look(ing)?   what it holds
(static|const) [a-z_ ]*[ *]look  poll, check, read
look_(again|at|for|here|closed|inside|block|every)[a-z_]*  poll, check, read, find
[a-z_]+_look(s|ed|_up)?|looks_lost  poll
history_lanes?[a-z_]*|lane_json|drawLane|"lane"|[a-z]+\.lane  span
(FINDING_[A-Z]+, |[a-z]*\[)"reach"|check: reach:|(p\.|potluckPeers\.|join-)reach  reachability, scope
(broadcast|verifier|equivocation_log|demo_view)_hear[a-z_]*  receive, event
[a-z]*_conduct      outcome
dht_(stakes?|ledgers?)  candidate for eviction, usage
[a-z]+_sound        finite, valid
givings?_[a-z]+|[a-z]+_givings?  upload
attendees?          participant
is_hopeless         has_failed
[a-z_]*goodbye      closing
image_believed|[a-z_]+_believable  check_size, is_plausible
[a-z_]*shaking_hands  in_handshake
(pl_partial|parts?)_deal|deal_parts  assign
[a-z]*_?upkeep[a-z_]*  maintenance
'
# In programs these are no names either; in prose they are English.
names='
said                output, reported, sent; gather, reply
told                reported
'
# In identifiers words are joined by underscores.
pattern_of() { echo "(^|[^A-Za-z])($(echo "$1" | sed -n 's/   *.*//p' | paste -sd '|'))([^A-Za-z]|\$)"; }

# Where a word may stay: the specifications quote others, a recorded value and a commit's subject are
# what they are. Single lines:
# a stored picture, a title that is quoted.
excepted() { # file
    case $1 in
    test/words.sh | paper/log/size.tsv | data/demo/* | test/golden/* | test/fuzz/corpus/*) ;;
    *) return 1 ;;
    esac
}

failed=0
search() { # pattern, options of grep: which files
    pattern=$1; shift
    # shellcheck disable=SC2086
    for file in $(grep -rlIEi "$@" "$pattern" $places | sort); do
        excepted "$file" && continue
        grep -nEi "$pattern" "$file" | grep -vE '"image/png"|Unsupervised Multitask Learners' | cut -c1-200 | sed "s|^|$file:|" >"${TMPDIR:-/tmp}/words.$$"
        [ -s "${TMPDIR:-/tmp}/words.$$" ] && cat "${TMPDIR:-/tmp}/words.$$" && failed=1
    done
    rm -f "${TMPDIR:-/tmp}/words.$$"
}
search "$(pattern_of "$words")"
search "$(pattern_of "$names")" --exclude='*.md'
exit $failed
