/* host_strangers.c - peers that connect and do not speak the protocol, send nothing, or send a byte
 * now and then: the host does not wait for them, and serves others meanwhile. */
#include "test/unit/libp2p/host_sides.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define IDLE 150 /* more than may be half open */

static int raw_socket(const struct multiaddr *a)
{
    struct sockaddr_in sa = { .sin_family = AF_INET };
    struct multiaddr_target t;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(multiaddr_target(&t, a), PL_OK);
    memcpy(&sa.sin_addr, t.ip, 4);
    sa.sin_port = htons(t.port);
    assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    return fd;
}

/* Reads until the other side closes; 1 if it does. */
static int is_closed(int fd)
{
    struct timeval limit = { .tv_sec = (time_t)LIMIT };
    char buffer[512];
    ssize_t n;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    while ((n = recv(fd, buffer, sizeof buffer, 0)) > 0 || (n < 0 && errno == EINTR)) {}
    close(fd);
    return n == 0 || errno == ECONNRESET;
}

static void garbage(void **state)
{
    static const char *const lines[] = {
        "GET / HTTP/1.1\r\n\r\n",
        "\x13/multistream/1.0.0\n\x07/nonsense",
        "\xff\xff\xff\xff\xff\xff",
        "\x13/multistream/1.0.0\n\x07/noise\n\xff\xff and so on, and so on, and so on, and so on",
        "\x13/multistream/1.0.0\n\x07/noise\n\x00",
        "\x13/multistream/1.0.0\n\x0b/tls/1.0.0\nhello?"
    };
    struct side a, b;
    struct asking q = { .from = &a, .to = &b.me.id, .name = "Test.echo", .timeout_s = LIMIT };
    int idle[IDLE];
    open_side(&b, 1, 0);
    for (size_t i = 0; i < PL_COUNT(lines); i++) {
        int fd = raw_socket(&b.at);
        size_t n = strlen(lines[i]);
        assert_int_equal(send(fd, lines[i], n, 0), (ssize_t)n);
        shutdown(fd, SHUT_WR);
        assert_true(is_closed(fd));
    }
    for (size_t i = 0; i < PL_COUNT(idle); i++)
        idle[i] = raw_socket(&b.at); /* connections that send nothing */
    open_side(&a, 0, 0);
    serve(&b, "Test.echo", echo, NULL, NULL);
    teach(&a, &b);
    ask_and_wait(&q);
    if (q.status) fail_msg("%s", q.error);
    bytes_clear(&q.response);
    for (size_t i = 0; i < PL_COUNT(idle); i++) close(idle[i]);
    close_side(&a);
    close_side(&b);
}

/* A peer that sends a byte now and then is not idle, but has to complete its handshake in time. */
static void a_byte_now_and_then(void **state)
{
    static const uint8_t greeting[64] = "\x13/multistream/1.0.0\n\x07/noise\n\x00\x30";
    struct timespec pause = { .tv_nsec = 500000000 };
    struct side b;
    size_t sent = 0;
    double began, lasted;
    int fd;
    open_side(&b, 1, 0);
    fd = raw_socket(&b.at);
    began = loop_now(b.loop);
    for (char c; sent < sizeof greeting; sent++) {
        if (send(fd, greeting + sent, 1, MSG_NOSIGNAL) != 1) break;
        nanosleep(&pause, NULL);
        while (recv(fd, &c, 1, MSG_DONTWAIT) == 1) {}
    }
    lasted = loop_now(b.loop) - began;
    close(fd);
    close_side(&b);
    if (lasted < CONN_SETUP_LIMIT - 1 || sent == sizeof greeting)
        fail_msg("%zu bytes in %.1f s", sent, lasted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(garbage),
        cmocka_unit_test(a_byte_now_and_then),
    };
    return cmocka_run_group_tests_name("host_strangers", tests, NULL, NULL);
}
