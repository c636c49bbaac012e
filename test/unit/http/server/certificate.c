/* certificate.c - a server's own certificate: what it says, that it signs itself, and which pairs of certificate and key
 * are refused. */
#include "net/http/authority/authority_server.h"
#include "test/unit/unit.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <time.h>

static struct bytes cert, key;

static int clear(void **state)
{
    bytes_clear(&cert);
    bytes_clear(&key);
    return 0;
}

static const char *text(const struct bytes *b)
{
    assert_int_equal(bytes_at(b)[bytes_length(b) - 1], 0);
    return (const char *)bytes_at(b);
}

static void make(const char *name)
{
    struct pl_err err = { "" };
    if (certificate_make(&cert, &key, name, &err)) fail_msg("%s", err.text);
}

static X509 *parse(void)
{
    BIO *b = BIO_new_mem_buf(text(&cert), -1);
    X509 *x = PEM_read_bio_X509(b, NULL, NULL, NULL);
    BIO_free(b);
    assert_non_null(x);
    return x;
}

static void a_certificate_names_its_host(void **state)
{
    static const char *const names[] = { "authority.example.org", "127.0.0.1", "::1" };
    for (size_t i = 0; i < PL_COUNT(names); i++) {
        time_t in_nine_years = time(NULL) + 9L * 365 * 24 * 3600,
               half_an_hour_ago = time(NULL) - 1800;
        X509 *x;
        make(names[i]);
        x = parse();
        assert_int_equal(X509_check_host(x, names[i], 0, 0, NULL), i == 0);
        assert_int_equal(X509_check_ip_asc(x, names[i], 0) == 1, i > 0);
        assert_int_equal(X509_check_host(x, "other.example.org", 0, 0, NULL), 0);
        assert_int_equal(X509_cmp_time(X509_get0_notBefore(x), &half_an_hour_ago), -1);
        assert_int_equal(X509_cmp_time(X509_get0_notAfter(x), &in_nine_years), 1);
        assert_int_equal(X509_get_version(x), X509_VERSION_3);
        assert_int_equal(X509_check_ca(x), 1);
        assert_int_equal(X509_verify(x, X509_get0_pubkey(x)), 1);
        assert_int_equal(X509_check_issued(x, x), X509_V_OK);
        assert_true(ASN1_INTEGER_get(X509_get0_serialNumber(x)) != 0);
        assert_int_equal(certificate_check(text(&cert), "c", text(&key), "k", NULL), PL_OK);
        X509_free(x);
        clear(NULL);
    }
}

static void names_that_are_none(void **state)
{
    char longest[252];
    struct pl_err err;
    assert_int_equal(certificate_make(&cert, &key, "a,DNS:b", &err), PL_EUSE);
    assert_non_null(strstr(err.text, "not a valid host name"));
    memset(longest, 'a', 251);
    longest[251] = 0;
    assert_int_equal(certificate_make(&cert, &key, longest, &err), PL_EUSE);
    longest[250] = 0;
    make(longest);
}

static void pairs_that_do_not_belong_together(void **state)
{
    struct bytes other_cert = { 0 }, other_key = { 0 };
    struct pl_err err;
    make("a");
    assert_int_equal(certificate_make(&other_cert, &other_key, "a", NULL), PL_OK);
    assert_int_equal(certificate_check(text(&cert), "c.pem", text(&other_key), "k.pem", &err),
                     PL_EFORMAT);
    assert_non_null(strstr(err.text, "c.pem is the certificate of another key than that of k.pem"));
    assert_int_equal(certificate_check(text(&key), "c.pem", text(&key), "k.pem", &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "c.pem: no certificate"));
    assert_int_equal(certificate_check(text(&cert), "c.pem", text(&cert), "k.pem", &err),
                     PL_EFORMAT);
    assert_non_null(strstr(err.text, "k.pem: no private key"));
    bytes_clear(&other_cert);
    bytes_clear(&other_key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_certificate_names_its_host, clear),
        cmocka_unit_test_teardown(names_that_are_none, clear),
        cmocka_unit_test_teardown(pairs_that_do_not_belong_together, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
