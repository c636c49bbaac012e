/* links.c - the links between several hosts on one machine, made in user space: for kernels
 * without netem. Each host is a network namespace; its interface is a TUN device that this
 * program holds the other end of.
 *
 *   host --[up: rate, queue, delay, loss]--> here --[down: the same]--> host
 *                                             |
 *                          side a <--[cut]--> side b
 *
 * usage: links SEED NAMESPACE:ADDRESS:SIDE:UP:DOWN:DELAY:LOSS:INBOUND ...
 *   ADDRESS  IPv4 in one /24, whose third number is even     SIDE  a or b
 *   UP, DOWN Mbit/s      DELAY  ms of each direction         LOSS  % of each direction
 *   INBOUND  open; or closed, for a host behind NAT: no inbound connections. ADDRESS is then the
 *            router's: it replaces the host's own address (third number one more), and back
 * Prints "ready". Commands on standard input, a line each: cut, heal, counts (a line of JSON a
 * host). Ends with standard input.
 *
 * A direction is what tc's netem is: a packet is lost at random, or because the queue is full;
 * else it leaves when those before it have left, at the link's rate, and arrives a delay later.
 * All of that is computed from the time at which it came, so a packet may be late where this
 * program gets no processor, and is never early. The losses' dice are seeded: the n-th packet of
 * a direction meets the same fate in every run. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define HOSTS_MAX 32
#define MTU 1500
#define INSIDE htonl(0x100) /* from a router's address to the host's behind it */
#define QUEUE_S 0.1         /* s of its rate that a direction's queue holds; more is dropped */
#define TOGETHER_S 2e-4 /* s that a packet may wait for the next: fewer calls, 1 % of the delay */
#define READS_MAX 64    /* packets from a host before the others get their turn */

struct packet {
    double at; /* s: when it comes out */
    struct packet *next;
    size_t n;
    uint8_t data[];
};

struct direction {
    double rate, delay, loss; /* bytes/s, s, probability */
    double free_at;           /* s: when what is queued has left */
    uint64_t dice;
    struct packet *first, **last;
    unsigned long packets, bytes, lost, full; /* that came; of them dropped */
};

struct host {
    const char *name;
    uint32_t address; /* network order */
    char side;
    int closed, fd;
    struct direction up, down;
    unsigned long delivered, cut, refused, nowhere;
};

static struct host hosts[HOSTS_MAX];
static size_t host_count;
static int is_cut;

static void die(const char *what, const char *which)
{
    fprintf(stderr, "links: %s %s: %s\n", which, what, strerror(errno));
    exit(1);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* splitmix64, to [0, 1) */
static double draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

/* --- a direction ------------------------------------------------------------------------------ */

static void enter(struct direction *d, double now, struct packet *p)
{
    double unlucky = draw(&d->dice);
    d->packets++;
    d->bytes += p->n;
    if (d->free_at < now) d->free_at = now;
    if (unlucky < d->loss) d->lost++;
    else if (d->free_at - now > QUEUE_S) d->full++;
    else {
        d->free_at += (double)p->n / d->rate;
        p->at = d->free_at + d->delay;
        p->next = NULL;
        *d->last = p;
        d->last = &p->next;
        return;
    }
    free(p);
}

static struct packet *leave(struct direction *d)
{
    struct packet *p = d->first;
    d->first = p->next;
    if (!d->first) d->last = &d->first;
    return p;
}

/* --- between them ----------------------------------------------------------------------------- */

/* A checksum's 16-bit word after one of the words that it is of has changed. [RFC 1624, eq. 3] */
static void mend(uint8_t *sum, const uint8_t *was, const uint8_t *is)
{
    uint32_t s = (uint16_t) ~(sum[0] << 8 | sum[1]);
    s += (uint16_t) ~(was[0] << 8 | was[1]);
    s += (uint32_t)(is[0] << 8 | is[1]);
    s = (s & 0xffff) + (s >> 16);
    s = ~((s & 0xffff) + (s >> 16));
    sum[0] = (uint8_t)(s >> 8);
    sum[1] = (uint8_t)s;
}

/* Another address in that place, 12 the sender's or 16 the receiver's; ports stay. */
static void translate(struct packet *p, size_t place, uint32_t address)
{
    uint8_t *ip = p->data, is[4];
    size_t header = (size_t)(ip[0] & 15) * 4, sum = 0;
    if (ip[9] == IPPROTO_TCP && p->n >= header + 20) sum = header + 16;
    if (ip[9] == IPPROTO_UDP && p->n >= header + 8 && (ip[header + 6] || ip[header + 7]))
        sum = header + 6;
    memcpy(is, &address, 4);
    for (size_t i = 0; i < 4; i += 2) {
        mend(ip + 10, ip + place + i, is + i);
        if (sum) mend(ip + sum, ip + place + i, is + i);
    }
    memcpy(ip + place, is, 4);
}

/* What a router that lets connections out alone keeps away: TCP's first packet, and datagrams. */
static int knocks(const uint8_t *ip, size_t n)
{
    size_t header = (size_t)(ip[0] & 15) * 4;
    if (ip[9] == IPPROTO_UDP) return 1;
    if (ip[9] != IPPROTO_TCP || n < header + 20) return 0;
    return (ip[header + 13] & 0x12) == 0x02; /* SYN without ACK */
}

static void route(struct host *from, struct packet *p)
{
    uint32_t address;
    memcpy(&address, p->data + 16, 4);
    for (struct host *to = hosts; to < hosts + host_count; to++) {
        if (to->address != address) continue;
        if (is_cut && to->side != from->side) to->cut++;
        else if (to->closed && knocks(p->data, p->n)) to->refused++;
        else {
            enter(&to->down, p->at, p);
            return;
        }
        free(p);
        return;
    }
    from->nowhere++; /* broadcasts and the like */
    free(p);
}

/* Whatever is due, in the order of time, so that each queue stays in order, too. Returns the time
 * of what comes next. */
static double pass(double now)
{
    for (;;) {
        struct host *h = NULL;
        struct direction *d = NULL;
        struct packet *p;
        for (size_t i = 0; i < host_count; i++) {
            struct host *a = &hosts[i];
            if (a->up.first && (!d || a->up.first->at < d->first->at)) d = &(h = a)->up;
            if (a->down.first && (!d || a->down.first->at < d->first->at)) d = &(h = a)->down;
        }
        if (!d) return -1;
        if (d->first->at > now) return d->first->at;
        p = leave(d);
        if (d == &h->up) route(h, p);
        else {
            if (h->closed) translate(p, 16, h->address | INSIDE);
            if (write(h->fd, p->data, p->n) == (ssize_t)p->n) h->delivered++;
            free(p);
        }
    }
}

static void take(struct host *h)
{
    for (int i = 0; i < READS_MAX; i++) {
        struct packet *p = malloc(sizeof *p + MTU);
        ssize_t n;
        if (!p) die("packet", h->name);
        n = read(h->fd, p->data, MTU);
        if (n < 20 || p->data[0] >> 4 != 4) { /* nothing more, or IPv6's greetings */
            free(p);
            if (n < 0) return;
            continue;
        }
        p->n = (size_t)n;
        if (h->closed) translate(p, 12, h->address);
        enter(&h->up, now_s(), p);
    }
}

/* --- setting up ------------------------------------------------------------------------------- */

/* The device `eth` in the host's namespace, up, with its address. This process moves there and
 * stays; the descriptor works from anywhere. */
static void open_device(struct host *h)
{
    struct ifreq r = { .ifr_flags = IFF_TUN | IFF_NO_PI };
    struct sockaddr_in sa = { .sin_family = AF_INET };
    char path[300];
    int s, ns;
    snprintf(path, sizeof path, "/var/run/netns/%s", h->name);
    if ((ns = open(path, O_RDONLY | O_CLOEXEC)) < 0 || setns(ns, CLONE_NEWNET)) die(path, h->name);
    close(ns);
    strcpy(r.ifr_name, "eth");
    h->fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (h->fd < 0 || ioctl(h->fd, TUNSETIFF, &r)) die("/dev/net/tun", h->name);
    if ((s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) < 0) die("socket", h->name);
    sa.sin_addr.s_addr = h->closed ? h->address | INSIDE : h->address;
    memcpy(&r.ifr_addr, &sa, sizeof sa);
    if (ioctl(s, SIOCSIFADDR, &r)) die("address", h->name);
    sa.sin_addr.s_addr = htonl(0xffff0000);
    memcpy(&r.ifr_netmask, &sa, sizeof sa);
    if (ioctl(s, SIOCSIFNETMASK, &r)) die("netmask", h->name);
    r.ifr_mtu = MTU;
    if (ioctl(s, SIOCSIFMTU, &r)) die("MTU", h->name);
    r.ifr_qlen = 2000; /* what comes while this program gets no processor is not lost */
    if (ioctl(s, SIOCSIFTXQLEN, &r)) die("queue", h->name);
    r.ifr_flags = IFF_UP | IFF_RUNNING;
    if (ioctl(s, SIOCSIFFLAGS, &r)) die("up", h->name);
    strcpy(r.ifr_name, "lo");
    if (ioctl(s, SIOCSIFFLAGS, &r)) die("lo", h->name);
    close(s);
}

static void make_direction(struct direction *d, double mbit, double delay_ms, double loss_percent,
                           uint64_t seed)
{
    d->rate = mbit * 1e6 / 8;
    d->delay = delay_ms * 1e-3;
    d->loss = loss_percent * 1e-2;
    d->dice = seed;
    d->last = &d->first;
}

static int make_host(struct host *h, char *text, uint64_t seed)
{
    char address[16], inbound[8];
    double up, down, delay, loss;
    int end = 0;
    char *colon = strchr(text, ':');
    if (!colon || colon == text || colon - text > 200) return -1;
    *colon = 0;
    h->name = text;
    if (sscanf(colon + 1, "%15[0-9.]:%c:%lf:%lf:%lf:%lf:%7[a-z]%n", address, &h->side, &up, &down,
               &delay, &loss, inbound, &end) != 7 ||
        colon[1 + end])
        return -1;
    h->closed = !strcmp(inbound, "closed");
    if (inet_pton(AF_INET, address, &h->address) != 1 || h->address & INSIDE ||
        (h->side != 'a' && h->side != 'b') || !(up > 0) || !(down > 0) || !(delay >= 0) ||
        !(loss >= 0 && loss <= 100) || (!h->closed && strcmp(inbound, "open")))
        return -1;
    make_direction(&h->up, up, delay, loss, seed);
    make_direction(&h->down, down, delay, loss, ~seed);
    open_device(h);
    return 0;
}

static void print_counts(void)
{
    for (struct host *h = hosts; h < hosts + host_count; h++) {
        const struct direction *u = &h->up, *d = &h->down;
        printf("{\"host\":\"%s\",\"up_packets\":%lu,\"up_bytes\":%lu,\"up_lost\":%lu,"
               "\"up_full\":%lu,\"down_packets\":%lu,\"down_bytes\":%lu,\"down_lost\":%lu,"
               "\"down_full\":%lu,\"delivered\":%lu,\"cut\":%lu,\"refused\":%lu,\"nowhere\":%lu}\n",
               h->name, u->packets, u->bytes, u->lost, u->full, d->packets, d->bytes, d->lost,
               d->full, h->delivered, h->cut, h->refused, h->nowhere);
    }
    puts("end");
}

/* One read of standard input is whole lines: the writer waits for an answer to each. */
static int obey(void)
{
    char text[256];
    ssize_t n = read(0, text, sizeof text - 1);
    if (n <= 0) return -1;
    text[n] = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (!strcmp(line, "counts")) print_counts();
        else if (!strcmp(line, "cut") || !strcmp(line, "heal")) {
            is_cut = !strcmp(line, "cut");
            puts("done");
        } else printf("no such command: %s\n", line);
    }
    fflush(stdout);
    return 0;
}

int main(int argc, char **argv)
{
    struct pollfd fds[HOSTS_MAX + 1] = { { .fd = 0, .events = POLLIN } };
    uint64_t seed;
    if (argc < 3 || argc - 2 > HOSTS_MAX) {
        fputs("usage: links SEED NAMESPACE:ADDRESS:SIDE:UP:DOWN:DELAY:LOSS:INBOUND ...\n", stderr);
        return 2;
    }
    seed = strtoull(argv[1], NULL, 0);
    for (; host_count < (size_t)argc - 2; host_count++) {
        struct host *h = &hosts[host_count];
        if (make_host(h, argv[host_count + 2], (seed << 8) + host_count)) {
            fprintf(stderr, "links: '%s' is no host\n", argv[host_count + 2]);
            return 2;
        }
        fds[host_count + 1] = (struct pollfd){ .fd = h->fd, .events = POLLIN };
    }
    puts("ready");
    fflush(stdout);
    for (;;) {
        double now = now_s(), next = pass(now), wait = next - now + TOGETHER_S;
        struct timespec t = { (time_t)wait, (long)((wait - (double)(time_t)wait) * 1e9) };
        if (ppoll(fds, (nfds_t)host_count + 1, next < 0 ? NULL : &t, NULL) < 0 && errno != EINTR)
            die("ppoll", "all");
        if (fds[0].revents && obey()) return 0;
        for (size_t i = 0; i < host_count; i++)
            if (fds[i + 1].revents) take(&hosts[i]);
    }
}
