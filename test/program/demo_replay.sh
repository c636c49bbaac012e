#!/bin/sh
# demo_replay.sh - what the demo prints of its swarm, from records made here: samples of the batch
# that is being collected, the phase, the pace, the loss, peers that die or catch up, the table.
. "$(dirname "$0")/lib.inc"
record=$work/events.jsonl

event() { printf '{"time":%s,"peer":%s,%s}\n' "$1" "$2" "$3" >>"$record"; }
begin() {
    : >"$record"
    event 0 0 '"event":"begin","steps":40,"target_batch":64'
    for k in 1 2 4; do event 0 $k '"event":"state","state":"starting"'; done
}
batch() { # time peer step samples due
    event "$1" "$2" "\"event\":\"batch\",\"epoch\":$3,\"peers\":3,\"global_samples\":999,\"local_samples\":$4,\"due\":$5,\"loss\":9.5,\"samples_per_second\":25.5"
}
stepped() { # time peer step samples loss
    event "$1" "$2" "\"event\":\"epoch\",\"epoch\":$3,\"peers\":3,\"local_samples\":$4,\"due\":false,\"loss\":$5,\"samples_per_second\":25.5,\"round_peers\":3,\"seconds\":0.25"
}
shown() { event "$1" 0 '"event":"shown"'; }
prints() { # what; the lines before the table are those of stdin
    cat >"$work/want"
    "$POTLUCK" demo --replay "$record" >"$work/got" 2>&1
    check "$1" sh -c 'head -n "$(wc -l <"$0")" "$1" | cmp "$0" - || { cat "$1"; false; }' "$work/want" "$work/got"
}

begin
shown 0
event 0 1 '"event":"listening","multiaddr":"/ip4/127.0.0.1"'
event 0 1 '"event":"check","level":"ok"'
event 0 4 '"event":"ready","epoch":0,"peers":3'
batch 1 1 0 8 false
batch 1 1 0 16 false
batch 1 2 0 8 false
shown 2
batch 2 2 0 16 false
batch 2 4 0 8 false
batch 2 1 0 40 true
event 2 1 '"event":"corrected","epoch":0,"peers":3,"local_samples":0' # says nothing of our samples
shown 2
batch 3 1 0 48 true
shown 3
stepped 4 1 1 48 5.0
batch 4 1 1 8 false
shown 4
stepped 4 2 1 16 6.0
stepped 4 4 1 8 4.0
batch 4 4 1 8 false
shown 4
prints "samples, phase and pace are those of the peers" <<'END'
step 0 of 40, collecting  samples 0 of 64  0 s elapsed; peers: 1 starting, 2 starting, 4 starting
step 0 of 40, collecting  samples 24 of 64  3 peers  2 s elapsed; peers: 1 training, 2 training, 4 entering
step 0 of 40, collecting  samples 64 of 64  3 peers  2 s elapsed; peers: 1 training, 2 training, 4 training
step 0 of 40, averaging  samples 72 of 64  3 peers  3 s elapsed; peers: 1 averaging, 2 training, 4 training
step 1 of 40, collecting  samples 8 of 64  3 peers  loss 5.0000  12.0 samples/s  4 s elapsed, 2:36 min left; peers: 1 training, 2 training, 4 training
step 1 of 40, collecting  samples 16 of 64  3 peers  loss 5.1111  18.0 samples/s  4 s elapsed, 2:36 min left; peers: 1 training, 2 training, 4 training
END

# Dead peers and peers that catch up add no samples; the pace is the recent one.
begin
stepped 10 1 10 32 5.0
stepped 10 2 10 32 5.0
shown 20
stepped 30 1 20 32 5.0
batch 30 2 10 8 false
batch 30 2 20 24 false
batch 30 1 20 16 false
event 40 2 '"event":"state","state":"dead"'
shown 40
event 50 4 '"event":"behind","epoch":20,"peers":3,"local_samples":24'
stepped 55 1 30 64 4.0
batch 58 1 30 8 false
shown 59.9
stepped 65 1 40 64 3.0
shown 59.9
prints "who has left adds nothing" <<'END'
step 10 of 40, collecting  samples 0 of 64  3 peers  loss 5.0000  3.2 samples/s  20 s elapsed, 60 s left; peers: 1 training, 2 training, 4 starting
step 20 of 40, collecting  samples 16 of 64  3 peers  loss 5.0000  1.6 samples/s  40 s elapsed, 40 s left; peers: 1 training, 2 dead, 4 starting
step 30 of 40, collecting  samples 8 of 64  3 peers  loss 4.0000  2.4 samples/s  60 s elapsed, 20 s left; peers: 1 training, 2 dead, 4 catching up
step 40 of 40, done  loss 3.0000  4.0 samples/s  60 s elapsed; peers: 1 training, 2 dead, 4 catching up
END

begin
event 0 0 '"event":"state","state":"open"'
stepped 1 1 1 40 5.0
stepped 1 2 1 24 6.0
batch 2 1 1 16 false
event 2 2 '"event":"state","state":"dead"'
prints "the table has a row for each peer" <<'END'
step 1 of 40, collecting  samples 16 of 64  3 peers
loss 5.3750  32.0 samples/s  2 s elapsed, 78 s left
peer                 state        step samples    loss samples/s last step
0    bootstrap       open       
1    fast            training        1      16  5.0000      25.5 3 peers, 0.25 s
2    killed half-way dead            1       0  6.0000       0.0 3 peers, 0.25 s
3    joins late      not yet    
4    slow, a client  starting        0       0
END

# With local steps each peer has the target to itself, and what counts are rounds.
: >"$record"
event 0 0 '"event":"begin","steps":8,"target_batch":200,"is_local":true'
for k in 1 2 4; do batch 1 $k 0 $((50 * k)) false; done
shown 1
event 2 4 '"event":"state","state":"dead"'
shown 2
prints "local steps add up over those who live" <<'END'
round 0 of 8, collecting  samples 350 of 600  3 peers  1 s elapsed; peers: 1 training, 2 training, 4 training
round 0 of 8, collecting  samples 150 of 400  3 peers  2 s elapsed; peers: 1 training, 2 training, 4 dead
END

for line in '[]' '{"event":"batch","peer":5,"time":1}' '{"event":"batch","peer":-1,"time":1}' '{"peer":1}' nonsense; do
    begin
    echo "$line" >>"$record"
    refuses 1 "line 5 is not an event of a demo" "$POTLUCK" demo --replay "$record"
done
refuses 1 "/nowhere" "$POTLUCK" demo --replay /nowhere
finish
