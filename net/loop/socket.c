/* socket.c - congestion control by path, and how much the kernel may hold.
 *
 * On a path that loses packets for other reasons than congestion, CUBIC halves its window at each
 * loss. BBR paces by the delivery rate that it measures, so it keeps such a path full. Within one
 * machine the pacing only costs timers. */
#include "socket.h"
#include "ref/base.h"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static const char paced[] = "bbr";

static int is_here(const struct sockaddr *sa)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)sa;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)sa;
    if (sa->sa_family == AF_INET) return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    return sa->sa_family == AF_INET6 &&
           (IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) ||
            (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) && v6->sin6_addr.s6_addr[12] == 127));
}

static int leads_here(int fd)
{
    struct sockaddr_storage sa = { 0 };
    socklen_t n = sizeof sa;
    return getpeername(fd, (struct sockaddr *)&sa, &n) || is_here((struct sockaddr *)&sa);
}

void socket_begin(int fd, const struct sockaddr *to)
{
    static const char *const unpaced[] = { "cubic", "reno" }; /* the latter is always allowed */
    char name[16] = "";
    socklen_t n = sizeof name - 1;
    int rc = -1;
    if ((to && !is_here(to)) || getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &n)) return;
    if (strncmp(name, paced, sizeof paced - 1)) return;
    for (size_t i = 0; rc && i < PL_COUNT(unpaced); i++)
        rc = setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, unpaced[i], (socklen_t)strlen(unpaced[i]));
}

void socket_prepare(int fd)
{
    int n = SOCKET_NOTSENT;
    if (leads_here(fd)) return;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, paced, sizeof paced - 1);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &n, sizeof n);
}

int socket_share_port(int fd)
{
    int on = 1;
    return setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
                   setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on)
               ? -1
               : 0;
}

size_t socket_unconfirmed(int fd)
{
    int n = 0;
    return ioctl(fd, SIOCOUTQ, &n) || n < 0 ? 0 : (size_t)n;
}
