#!/bin/sh
# rig.sh - peers behind routers of any kind, each in a network namespace of its own.
#
#   rig.sh up NAME KIND_A KIND_B    makes the hosts NAME-a and NAME-b, each behind a router of its kind, and on the
#                                   internet between them NAME-relay (11.1.1.2) and NAME-other (11.2.2.2)
#   rig.sh long NAME KIND_A KIND_B  the same without cables to the internet, and with NAME-other2 to NAME-other4:
#                                   test/soak/links makes the cables, with a delay; then
#   rig.sh plug NAME NAMESPACE...   names its devices as the routers' rules do
#   rig.sh swarm NAME KIND...       NAME-relay as above, and for each kind a host: NAME-0, NAME-1, ...
#   rig.sh ip|ip6 NAME HOST         the host's own address
#   rig.sh restart NAME HOST        its router forgets all mappings, as one that is switched off and on
#   rig.sh move NAME HOST           its router gets another address on the internet
#   rig.sh down NAME                removes them all
#
#   none        no router: a public address
#   firewall    a public address; only answers come in
#   full        full cone: what has been mapped by an outgoing packet, everybody may use
#   restricted  the same for the addresses that a packet has gone to
#   port        port-restricted: for the address and port that a packet has gone to (Linux's masquerading)
#   symmetric   the same, and each destination is shown another port
#   igd         port-restricted, but forwards what its own prerouting rules translate: for a UPnP daemon (mapping.py)
#   shared      port-restricted; b stands behind a's router
#   hairpin     full cone, also for packets from inside to its own outer address (hairpinning); b stands behind it, too,
#               and the network lets its hosts talk to the router only, as guests' networks do
#   cgnat       port-restricted, and behind the provider's router, which is so, too
#   none6       a public IPv6 address and no other
#   firewall6   the same, and only answers come in, as behind most home routers
#
# Mappings keep the port where it is free, as most routers do. What is not let in is dropped without a word. It takes
# root, `ip` and `nft`; otherwise it says "skip" and why, and ends with status 77.
set -u
fail() { echo "$*" >&2; exit 1; }
skip() { echo "skip: $*"; down; exit 77; }

in_ns() { ns=$1; shift; ip netns exec "$name-$ns" "$@"; }
namespaces() { ip netns list 2>/dev/null | awk -v name="$name-" 'index($1, name) == 1 { print $1 }'; }
down() { for ns in $(namespaces); do ip netns del "$ns"; done; }

link() { # namespace, device, namespace, device: a cable between them
    ip link add "$2" netns "$name-$1" type veth peer name "$4" netns "$name-$3" || fail "no veth"
    in_ns "$1" ip link set "$2" up && in_ns "$3" ip link set "$4" up
}
add() { # namespace
    ip netns add "$name-$1" 2>/dev/null || skip "no right to make network namespaces"
    in_ns "$1" ip link set lo up
}
# A host or router on the internet: 11.N.N.2, whose way out is 11.N.N.1
attach() { # namespace, N
    [ "$long" ] && return
    link "$1" wan net "to$2"
    in_ns "$1" ip address add "11.$2.$2.2/24" dev wan
    in_ns net ip address add "11.$2.$2.1/24" dev "to$2"
    in_ns "$1" ip route add default via "11.$2.$2.1"
    attach6 "$1" "$2" net "to$2"
}
attach6() { # namespace, N, namespace and device of the internet's side: 2001:db8:N::2
    in_ns "$1" ip -6 address add "2001:db8:$2::2/64" dev wan nodad
    in_ns "$3" ip -6 address add "2001:db8:$2::1/64" dev "$4" nodad
    in_ns "$1" ip -6 route add default via "2001:db8:$2::1"
}
rules() { in_ns "$1" nft -f - || skip "nft makes no rules of this kind"; } # namespace; on standard input

# What a router does with its two devices, lan and wan.
nat() { # namespace, kind
    # A router that has restarted knows nothing of connections that were open.
    in_ns "$1" sysctl -qw net.ipv4.ip_forward=1 net.netfilter.nf_conntrack_tcp_loose=0
    case $2 in
    full | restricted | hairpin)
        # The table of mappings that the kernel does not keep by itself: who may come in, and to which host.
        inside= translated=
        if [ "$2" = hairpin ]; then
            inside="iifname lan fib daddr type local dnat to tcp dport map @open" translated='iifname lan oifname lan masquerade'
        fi
        if [ "$2" != restricted ]; then type='inet_service' key='tcp sport' found='tcp dport'
        else type='ipv4_addr . inet_service' key='ip daddr . tcp sport' found='ip saddr . tcp dport'; fi
        rules "$1" <<-END
	table ip nat {
	    map open { type $type : ipv4_addr; flags dynamic, timeout; timeout 10m; size 65535; }
	    chain forward { type filter hook forward priority 0; policy drop;
	        iifname lan oifname wan update @open { $key : ip saddr } accept
	        ct state established,related accept
	        ct status dnat accept
	    }
	    chain input { type filter hook input priority 0; iifname wan drop; }
	    chain in { type nat hook prerouting priority -100; iifname wan dnat to $found map @open
	        $inside
	    }
	    chain out { type nat hook postrouting priority 100; oifname wan masquerade
	        $translated
	    }
	}
	END
        ;;
    port | symmetric | igd | shared | cgnat)
        how=masquerade; [ "$2" = symmetric ] && how='masquerade fully-random'
        forwarded=; [ "$2" = igd ] && forwarded='ct status dnat accept'
        rules "$1" <<-END
	table ip nat {
	    chain forward { type filter hook forward priority 0; policy drop;
	        iifname lan accept
	        ct state established,related accept
	        $forwarded
	    }
	    chain input { type filter hook input priority 0; iifname wan drop; }
	    chain out { type nat hook postrouting priority 100; oifname wan $how; }
	}
	END
        ;;
    *) fail "rig.sh: no kind '$2'" ;;
    esac
}

host() { # a or b, kind, N on the internet
    add "$1"
    case $2 in
    none | none6) attach "$1" "$3" ;;
    firewall | firewall6)
        attach "$1" "$3"
        rules "$1" <<-END
	table inet nat {
	    chain input { type filter hook input priority 0; policy drop;
	        iifname lo accept
	        ct state established,related accept
	        meta l4proto icmpv6 accept
	    }
	}
	END
        ;;
    *)
        together=; case $2 in shared | hairpin) together=yes ;; esac
        if [ "$together" ] && [ "$1" = b ]; then router=router-a lan=lan2
        else
            router=router-$1 lan=lan
            add "$router"
            if [ "$2" = cgnat ]; then
                add "isp-$1"
                link "$router" wan "isp-$1" lan
                in_ns "$router" ip address add 100.64.0.2/24 dev wan
                in_ns "isp-$1" ip address add 100.64.0.1/24 dev lan
                in_ns "$router" ip route add default via 100.64.0.1
                attach "isp-$1" "$3"
                nat "isp-$1" port
            else attach "$router" "$3"; fi
        fi
        if [ "$router" = router-a ] && [ "$together" ]; then
            # one network of both hosts: a bridge
            [ "$1" = a ] && { in_ns "$router" ip link add lan type bridge; in_ns "$router" ip link set lan up; lan=lan1
                in_ns "$router" ip address add 192.168.1.1/24 dev lan; nat "$router" "$2"
                # What is translated to a host of this bridge is routed, not bridged.
                in_ns "$router" sysctl -qw net.bridge.bridge-nf-call-iptables=0 2>/dev/null; }
            link "$1" eth "$router" "$lan"
            in_ns "$router" ip link set "$lan" master lan
            [ "$2" = hairpin ] && in_ns "$router" bridge link set dev "$lan" isolated on
        else
            link "$1" eth "$router" lan
            in_ns "$router" ip address add 192.168.1.1/24 dev lan
            nat "$router" "$2"
        fi
        [ "$1" = a ] && last=2 || last=3
        in_ns "$1" ip address add "192.168.1.$last/24" dev eth
        in_ns "$1" ip route add default via 192.168.1.1
        ;;
    esac
    case $2 in *6) in_ns "$1" ip -4 address flush dev wan ;; esac
}

name=${2:-} long=
[ -n "$name" ] || fail "usage: rig.sh up NAME KIND_A KIND_B | ip NAME a|b | restart NAME a|b | down NAME"
begin() {
    [ "$(id -u)" = 0 ] || skip "it takes root"
    for tool in ip nft; do command -v $tool >/dev/null || skip "no $tool found (make test-deps)"; done
    down
    add net && in_ns net sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
    add relay && attach relay 1
}
wan_route() { in_ns "$1" ip route replace default via "$2"; } # namespace, gateway: a device that was down has lost it
case $1 in
up | long)
    [ "$1" = long ] && long=yes
    begin
    add other && attach other 2
    [ "$long" ] && for more in 2 3 4; do add other$more; done
    host a "$3" 3 && host b "$4" 4
    ;;
plug)
    shift 2
    for ns; do
        in_ns "$ns" ip link set eth down && in_ns "$ns" ip link set eth name wan && in_ns "$ns" ip link set wan up || fail "no device in $ns"
    done
    ;;
swarm)
    begin
    shift 2
    number=0
    for kind; do host "$number" "$kind" $((number + 20)); number=$((number + 1)); done
    ;;
ip) in_ns "$3" ip -4 -o address show | awk '$2 != "lo" { sub("/.*", "", $4); print $4 }' ;;
ip6) in_ns "$3" ip -6 -o address show dev wan scope global | awk '{ sub("/.*", "", $4); print $4 }' ;;
restart)
    # Masquerading forgets what it has mapped for a device that goes down.
    way=$(in_ns "router-$3" ip route show default | awk '{ print $3 }')
    in_ns "router-$3" ip link set wan down
    in_ns "router-$3" nft flush map ip nat open 2>/dev/null
    in_ns "router-$3" ip link set wan up
    wan_route "router-$3" "$way"
    ;;
move)
    old=$(in_ns "router-$3" ip -4 -o address show dev wan | awk '{ print $4 }')
    way=${old%.*/*}.1
    in_ns "router-$3" ip address del "$old" dev wan
    in_ns "router-$3" nft flush map ip nat open 2>/dev/null
    in_ns "router-$3" ip address add "${old%.*/*}.9/24" dev wan
    wan_route "router-$3" "$way"
    ;;
down) down ;;
*) fail "rig.sh: no command '$1'" ;;
esac
