/* handshake.c - two engines of Noise, or of TLS, and the bytes between them: both prove who they are, a wrong
 * peer or an altered byte ends it with a sentence, and long data arrives in pieces of any size.
 * [spec libp2p-wire 5, 6] */
#include "net/libp2p/security/secure_channel.h"
#include "net/libp2p/security/tls_cert.h"
#include "test/unit/hivemind/numbered_identity.h"

#include <openssl/bio.h>
#include <openssl/ssl.h>

typedef int opener(struct secure **s, const struct identity *me, int initiator,
                   const struct peer_id *expected, struct bytes *wire);
static opener *const openers[] = { noise_open, tls_open };

static struct identity ids[3];
static struct {
    struct secure *s[2]; /* the dialer first */
    struct bytes wire[2], plain[2];
    struct pl_err err[2];
    int rc[2];
    size_t piece; /* bytes that arrive at once */
} t;

static int make_identities(void **state)
{
    for (size_t i = 0; i < PL_COUNT(ids); i++) numbered_identity(&ids[i], i);
    return 0;
}

static int clear_identities(void **state)
{
    for (size_t i = 0; i < PL_COUNT(ids); i++) identity_clear(&ids[i]);
    return 0;
}

/* Key 0 dials, key 1 answers. */
static void begin(opener *open, const struct peer_id *by_dialer, const struct peer_id *by_listener)
{
    memset(&t, 0, sizeof t);
    t.piece = SIZE_MAX;
    assert_int_equal(open(&t.s[0], &ids[0], 1, by_dialer, &t.wire[0]), PL_OK);
    assert_int_equal(open(&t.s[1], &ids[1], 0, by_listener, &t.wire[1]), PL_OK);
    assert_true(bytes_length(&t.wire[0]) > 0 && bytes_length(&t.wire[1]) == 0);
}

static void end(void)
{
    for (int i = 0; i < 2; i++) {
        t.s[i]->close(t.s[i]);
        bytes_clear(&t.wire[i]);
        bytes_clear(&t.plain[i]);
    }
}

/* Everything that side `from` has to send; its own status then. */
static int carry(int from)
{
    const int to = 1 - from;
    while (!t.rc[to] && bytes_length(&t.wire[from])) {
        size_t n = bytes_length(&t.wire[from]);
        if (n > t.piece) n = t.piece;
        t.rc[to] = t.s[to]->receive(t.s[to], bytes_at(&t.wire[from]), n, &t.plain[to], &t.wire[to],
                                    &t.err[to]);
        bytes_take(&t.wire[from], n);
    }
    return t.rc[to];
}

static void carry_all(void)
{
    for (int i = 0; i < 8; i++) carry(i % 2);
}

static void both_learn_who_the_other_is(void **state)
{
    for (size_t k = 0; k < PL_COUNT(openers); k++)
        for (size_t piece = 1; piece; piece = piece == 1 ? 100 : piece == 100 ? SIZE_MAX : 0) {
            begin(openers[k], &ids[1].id, NULL);
            t.piece = piece;
            carry_all();
            for (int i = 0; i < 2; i++) {
                assert_int_equal(t.rc[i], PL_OK);
                assert_true(t.s[i]->established && t.s[i]->muxer_agreed);
                assert_true(peer_id_equal(&t.s[i]->remote, &ids[1 - i].id));
                assert_int_equal(bytes_length(&t.plain[i]), 0);
            }
            end();
        }
}

/* Another peer than a side expects is refused with both names. */
static void another_peer_than_was_dialed_is_refused(void **state)
{
    char want[PEER_ID_TEXT_MAX];
    peer_id_text(want, &ids[2].id);
    for (size_t k = 0; k < PL_COUNT(openers); k++)
        for (int side = 0; side < 2; side++) {
            char got[PEER_ID_TEXT_MAX];
            begin(openers[k], side ? &ids[1].id : &ids[2].id, side ? &ids[2].id : NULL);
            carry_all();
            assert_int_equal(t.rc[side], PL_EPROTO);
            assert_false(t.s[side]->established);
            peer_id_text(got, &ids[!side].id);
            if (!strstr(t.err[side].text, want) || !strstr(t.err[side].text, got))
                fail_msg("%s", t.err[side].text);
            /* TLS's alert tells the other side, too. */
            if (k == 1) assert_int_equal(t.rc[!side], PL_EPROTO);
            end();
        }
}

/* Plain bytes of every length that a record or message can cut. */
static void data_arrives_whole(void **state)
{
    static const size_t lengths[] = { 1, 16384, 16385, 65519, 65520, (1 << 20) + 1 };
    uint8_t *data = malloc((1 << 20) + 1);
    assert_non_null(data);
    for (size_t i = 0; i <= 1 << 20; i++) data[i] = (uint8_t)(i * 7 + i / 256);
    for (size_t k = 0; k < PL_COUNT(openers); k++) {
        begin(openers[k], NULL, NULL);
        carry_all();
        for (size_t i = 0; i < PL_COUNT(lengths); i++)
            for (int from = 0; from < 2; from++) {
                t.piece = i % 2 ? SIZE_MAX : 65536 + 7;
                assert_int_equal(t.s[from]->send(t.s[from], data, lengths[i], &t.wire[from]),
                                 PL_OK);
                assert_true(bytes_length(&t.wire[from]) > lengths[i]);
                assert_int_equal(carry(from), PL_OK);
                assert_int_equal(bytes_length(&t.plain[1 - from]), lengths[i]);
                assert_memory_equal(bytes_at(&t.plain[1 - from]), data, lengths[i]);
                bytes_clear(&t.plain[1 - from]);
            }
        end();
    }
    free(data);
}

/* The last byte of each flight, and of a message afterwards: nothing altered gets through. */
static void an_altered_byte_ends_the_connection(void **state)
{
    for (size_t k = 0; k < PL_COUNT(openers); k++)
        for (int flight = 0; flight < 4; flight++) {
            begin(openers[k], NULL, NULL);
            for (int i = 0; i < flight; i++) assert_int_equal(carry(i % 2), PL_OK);
            if (flight == 3)
                assert_int_equal(t.s[1]->send(t.s[1], (const uint8_t *)"abc", 3, &t.wire[1]),
                                 PL_OK);
            t.wire[flight % 2].data[t.wire[flight % 2].end - 1] ^= 1;
            carry_all();
            assert_true(t.rc[0] == PL_EPROTO || t.rc[1] == PL_EPROTO);
            assert_true(*t.err[t.rc[0] != PL_EPROTO].text);
            assert_true(!t.s[0]->established || !t.s[1]->established || flight == 3);
            assert_int_equal(bytes_length(&t.plain[0]), 0);
            end();
        }
}

/* Noise: message | its error. Bytes that cannot begin a handshake, or are too few for a tag. */
static void messages_that_do_not_fit_are_refused(void **state)
{
    static const uint8_t few[33] = { 0, 31 },
                         none[] = { 0, 15, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
    begin(noise_open, NULL, NULL);
    assert_int_equal(t.s[1]->receive(t.s[1], few, sizeof few, &t.plain[1], &t.wire[1], &t.err[1]),
                     PL_EPROTO);
    assert_non_null(strstr(t.err[1].text, "does not fit"));
    end();
    begin(noise_open, NULL, NULL);
    carry_all();
    assert_int_equal(t.s[1]->receive(t.s[1], none, sizeof none, &t.plain[1], &t.wire[1], &t.err[1]),
                     PL_EPROTO);
    assert_non_null(strstr(t.err[1].text, "15 bytes"));
    end();
}

/* Noise: the first message may carry a payload, of which both sides keep the hash alone. An empty message is legal. */
static void what_a_noise_message_may_hold(void **state)
{
    static const uint8_t e[] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    struct bytes first = { 0 };
    begin(noise_open, NULL, NULL);
    /* The dialer's hash does not hold these bytes, so its answer no longer fits. */
    assert_int_equal(bytes_be16(&first, 32 + sizeof e), PL_OK);
    assert_int_equal(bytes_add(&first, bytes_at(&t.wire[0]) + 2, 32), PL_OK);
    assert_int_equal(bytes_add(&first, e, sizeof e), PL_OK);
    assert_int_equal(t.s[1]->receive(t.s[1], bytes_at(&first), bytes_length(&first), &t.plain[1],
                                     &t.wire[1], &t.err[1]),
                     PL_OK);
    assert_true(bytes_length(&t.wire[1]) > 0);
    assert_int_equal(carry(1), PL_EPROTO);
    bytes_clear(&first);
    end();
    begin(noise_open, NULL, NULL);
    carry_all();
    assert_int_equal(t.s[0]->send(t.s[0], (const uint8_t *)"", 0, &t.wire[0]), PL_OK);
    assert_int_equal(bytes_length(&t.wire[0]), 2 + 16);
    assert_int_equal(carry(0), PL_OK);
    assert_int_equal(bytes_length(&t.plain[1]), 0);
    end();
}

/* --- TLS: what another implementation may do ------------------------------------------------ */

static struct {
    SSL_CTX *ctx;
    SSL *ssl;
    int established, muxer_agreed; /* how our side ended */
} other;

/* A plain TLS client: `alpn` in wire form, and how often it shows its certificate. */
static void open_client(const char *alpn, size_t n, int certificates)
{
    X509 *cert;
    EVP_PKEY *key;
    other.ctx = SSL_CTX_new(TLS_client_method());
    assert_non_null(other.ctx);
    assert_int_equal(tls_cert_make(&cert, &key, &ids[0]), PL_OK);
    if (certificates) {
        assert_int_equal(SSL_CTX_use_certificate(other.ctx, cert), 1);
        assert_int_equal(SSL_CTX_use_PrivateKey(other.ctx, key), 1);
    }
    if (certificates > 1) assert_int_equal(SSL_CTX_add1_chain_cert(other.ctx, cert), 1);
    X509_free(cert);
    EVP_PKEY_free(key);
    if (n)
        assert_int_equal(SSL_CTX_set_alpn_protos(other.ctx, (const unsigned char *)alpn,
                                                 (unsigned)n),
                         0);
    assert_non_null(other.ssl = SSL_new(other.ctx));
    SSL_set_bio(other.ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_connect_state(other.ssl);
}

/* The listener is ours; how it ends. */
static int meet_client(void)
{
    struct secure *s;
    struct bytes wire = { 0 }, plain = { 0 };
    int rc = PL_OK;
    memset(&t, 0, sizeof t);
    assert_int_equal(tls_open(&s, &ids[1], 0, NULL, &wire), PL_OK);
    for (int i = 0; i < 4 && !rc; i++) {
        uint8_t data[8192];
        int n;
        SSL_do_handshake(other.ssl);
        n = BIO_read(SSL_get_wbio(other.ssl), data, sizeof data);
        if (n > 0) rc = s->receive(s, data, (size_t)n, &plain, &wire, &t.err[1]);
        BIO_write(SSL_get_rbio(other.ssl), bytes_at(&wire), (int)bytes_length(&wire));
        bytes_take(&wire, bytes_length(&wire));
    }
    other.established = s->established;
    other.muxer_agreed = s->muxer_agreed;
    if (s->established) assert_true(peer_id_equal(&s->remote, &ids[0].id));
    s->close(s);
    bytes_clear(&wire);
    bytes_clear(&plain);
    return rc;
}

static void close_client(void)
{
    SSL_free(other.ssl);
    SSL_CTX_free(other.ctx);
}

static void what_a_tls_client_has_to_show(void **state)
{
    static const char libp2p[] = "\x06libp2p", muxer[] = "\x02h2\x0c/yamux/1.0.0\x06libp2p",
                      http[] = "\x02h2";
    const unsigned char *name;
    unsigned n;
    open_client(libp2p, sizeof libp2p - 1, 0);
    assert_int_equal(meet_client(), PL_EPROTO);
    assert_non_null(strstr(t.err[1].text, "certificate"));
    assert_false(other.established);
    SSL_get0_alpn_selected(other.ssl, &name, &n);
    assert_true(n == 6 && !memcmp(name, "libp2p", 6));
    close_client();
    open_client(libp2p, sizeof libp2p - 1, 2);
    assert_int_equal(meet_client(), PL_EPROTO);
    assert_non_null(strstr(t.err[1].text, "2 certificates"));
    assert_false(other.established);
    close_client();
    open_client(libp2p, sizeof libp2p - 1, 1);
    assert_int_equal(meet_client(), PL_OK);
    assert_true(other.established && !other.muxer_agreed); /* it is negotiated afterwards */
    close_client();
    open_client(muxer, sizeof muxer - 1, 1); /* the multiplexer, wherever it stands */
    assert_int_equal(meet_client(), PL_OK);
    assert_true(other.established && other.muxer_agreed);
    SSL_get0_alpn_selected(other.ssl, &name, &n);
    assert_true(n == 12 && !memcmp(name, "/yamux/1.0.0", 12));
    close_client();
    open_client(http, sizeof http - 1, 1);
    assert_int_equal(meet_client(), PL_EPROTO);
    close_client();
    open_client(libp2p, sizeof libp2p - 1, 1);
    SSL_set_max_proto_version(other.ssl, TLS1_2_VERSION);
    assert_int_equal(meet_client(), PL_EPROTO);
    assert_non_null(strstr(t.err[1].text, "protocol"));
    close_client();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_learn_who_the_other_is),
        cmocka_unit_test(another_peer_than_was_dialed_is_refused),
        cmocka_unit_test(data_arrives_whole),
        cmocka_unit_test(an_altered_byte_ends_the_connection),
        cmocka_unit_test(messages_that_do_not_fit_are_refused),
        cmocka_unit_test(what_a_noise_message_may_hold),
        cmocka_unit_test(what_a_tls_client_has_to_show),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make_identities, clear_identities);
}
