"""corrupt.py - expected values that are wrong: corrupt.py POTLUCK

Each line of VALUES names values of a golden file that `potluck conform` has to compare. One at a time is changed, the first
and the last of its kind, and conform has to fail without crashing. `*` stands for any key or place.
"""
import json
import os
import subprocess
import sys
import tempfile

VALUES = """
wire/peer_ids keys/*/type keys/*/public_key_protobuf keys/*/peer_id keys/*/base58 keys/*/cid keys/*/signature_of_msg/sig
wire/multiaddr pairs/*/binary text_alias/*/binary base58/*/hex
wire/multistream tokens/*/hex exchanges/*/dialer/* exchanges/*/listener/*
wire/noise protocol handshakes/*/initiator_static_public handshakes/*/responder_ephemeral_public handshakes/*/handshake_hash
wire/noise handshakes/*/responder_signed_message handshakes/*/key_initiator_to_responder handshakes/*/wire/*/from
wire/noise handshakes/*/initiator_trace/*/h handshakes/*/responder_trace/*/value handshakes/*/transport/*/n
wire/noise_session identity_private static_private p2pd_peer_id
wire/tls_certs certificates/*/valid signed_key/signed_message signed_key/signature signed_key/oid signed_key/oid_der
wire/tls_certs signed_key/host_private_key_protobuf
wire/yamux frames/*/version frames/*/type frames/*/length frames/*/body session/*/frames/*/dir session/*/frames/*/body
wire/yamux session/0/result session/3/result/*/1
wire/identify from_p2pd/publicKey from_p2pd/agentVersion from_p2pd/record/* ours_accepted_by_p2pd/*
wire/kad find_node/target find_node/request_delimited
wire/relay status/0 limit/*
wire/unary request/call_id request/message request/proto response_ok/response response_error/error
wire/streaming frames/*/hex
wire/dht_session we_call_rpc_ping/response_data p2pd_dials_us/our_peer_id
protocol/auth client_public_key server_public_key token/public_key token/username requests/*/valid responses/*/valid
protocol/dht_ids ids/*/id xor/*/xor xor/*/common_prefix_bits
protocol/matchmaking keys/*/download_dht_id keys/*/declare/value_on_wire group_bits_after_group/*/group_size
protocol/matchmaking group_bits_after_group/*/sample/* group_bits_after_group/*/num_buckets valid_group_keys/*
protocol/msgpack values/*/hex
protocol/partition partitions/*/parts_by_tensor/* partitions/*/parts_by_peer/*/*/numel apportionment/*/allocated/*
protocol/progress metrics_key global_progress_cases/*/result/* performance_ema/*/steps/*/samples_per_second
protocol/protobuf enums/*/* messages/*/hex
protocol/routing_table scenarios/*/buckets/*/depth scenarios/*/queries/*/nearest/*
protocol/schema records/*/valid
protocol/signatures owner_tag records/*/valid records/*/stripped_value
protocol/schema_hash cases/*/schema_hash cases/0/descriptors/*/dtype
protocol/timed_storage scenarios/*/operations_that_differ scenarios/*/operations/*/result_sane
protocol/state_download metadata_hex metadata/epoch parameter_sums/*
protocol/join_rejections leader_peer_id joins/*/responses/*/code joins/*/responses/*/hex
protocol/allreduce_two_plain inputs/*/* outputs/*/* peers/*/peer_id peers/*/schema_hash peers/*/weight settings/peers/*/weight
protocol/dht_calls nodes/*/peer_id calls/*/messages/*/dir
outer/demo_chunks cases/*/2
outer/powersgd_wire_shapes cases/*/3
"""


def paths(value, pattern, at=()):
    """Where the pattern leads to a text, a number or a truth."""
    if not pattern:
        if isinstance(value, (str, int, float)) and value != "":
            yield at
        return
    inside = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    for key, inner in inside:
        if pattern[0] in ("*", str(key)):
            yield from paths(inner, pattern[1:], at + (key,))


def changed(value):
    if isinstance(value, bool):
        return not value
    if not isinstance(value, str):
        return value + 1
    place = 7 if len(value) > 8 else len(value) - 1  # of a float32 its exponent
    other = "%x" % (int(value[place], 16) ^ 1) if value[place] in "0123456789abcdef" else "x" if value[place] != "x" else "y"
    return value[:place] + other + value[place + 1:]


def conform(potluck, folder):
    done = subprocess.run([potluck, "conform", "--backend", "ref", "--golden", folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return done.returncode


def main():
    potluck, passed, failed = sys.argv[1], 0, 0
    for line in VALUES.split("\n"):
        file, *patterns = line.split() or [""]
        if not file:
            continue
        with open("test/golden/%s.json" % file) as golden:
            root = json.load(golden)
        with tempfile.TemporaryDirectory() as work:
            folder = os.path.join(work, os.path.dirname(file))
            os.mkdir(folder)
            for pattern in patterns:
                found = list(paths(root, pattern.split("/")))
                if not found:
                    print("FAIL", file, pattern, "is not there")
                    failed += 1
                for path in dict.fromkeys((found[0], found[-1]) if found else ()):
                    place = root
                    for key in path[:-1]:
                        place = place[key]
                    kept, place[path[-1]] = place[path[-1]], changed(place[path[-1]])
                    with open(os.path.join(folder, os.path.basename(file) + ".json"), "w") as out:
                        json.dump(root, out)
                    place[path[-1]] = kept
                    status = conform(potluck, folder)
                    if status != 1:
                        print("FAIL", file, "/".join(map(str, path)), "changed: exit status", status)
                        failed += 1
                    else:
                        passed += 1
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    return failed > 0


sys.exit(main())
