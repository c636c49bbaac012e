/* sigv4.c - the examples of Amazon's documentation of S3's signatures. */
#include "net/http/upload/sigv4.h"
#include "test/unit/unit.h"

#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define TEXT \
    "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072" /* "Welcome to Amazon S3." */
#define HOST "host:examplebucket.s3.amazonaws.com"
#define DATE "x-amz-date:20130524T000000Z"
#define NOTHING "x-amz-content-sha256:" EMPTY

static const struct sigv4 key = { "AKIAIOSFODNN7EXAMPLE",
                                  "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "us-east-1", "s3",
                                  "20130524T000000Z" };
static const char *const ranged[] = { HOST, "range:bytes=0-9", NOTHING, DATE, NULL };
static const char *const stored[] = {
    "date:Fri, 24 May 2013 00:00:00 GMT",     HOST, "x-amz-content-sha256:" TEXT, DATE,
    "x-amz-storage-class:REDUCED_REDUNDANCY", NULL
};
static const char *const plain[] = { HOST, NOTHING, DATE, NULL };

static const struct {
    struct sigv4_request request;
    const char *names, *signature;
} cases[] = {
    { { "GET", "/test.txt", "", ranged, EMPTY },
      "host;range;x-amz-content-sha256;x-amz-date",
      "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41" },
    { { "PUT", "/test%24file.text", "", stored, TEXT },
      "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
      "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd" },
    { { "GET", "/", "lifecycle=", plain, EMPTY },
      "host;x-amz-content-sha256;x-amz-date",
      "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543" },
    { { "GET", "/", "max-keys=2&prefix=J", plain, EMPTY },
      "host;x-amz-content-sha256;x-amz-date",
      "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7" },
};

static void documented_examples(void **state)
{
    char got[SIGV4_HEADER_MAX], want[SIGV4_HEADER_MAX];
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        snprintf(want, sizeof want,
                 "AWS4-HMAC-SHA256 "
                 "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
                 "SignedHeaders=%s,Signature=%s",
                 cases[i].names, cases[i].signature);
        assert_int_equal(sigv4_authorization(got, &key, &cases[i].request), PL_OK);
        assert_string_equal(got, want);
    }
}

static void what_is_too_long_is_refused(void **state)
{
    static char text[2000];
    struct sigv4 other = key;
    char got[SIGV4_HEADER_MAX];
    const char *const many[] = { text, NULL };
    struct sigv4_request r = cases[0].request;
    memset(text, 'x', sizeof text - 1);
    other.secret = text;
    assert_int_equal(sigv4_authorization(got, &other, &r), PL_ELIMIT);
    r.headers = many;
    assert_int_equal(sigv4_authorization(got, &key, &r), PL_ELIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documented_examples),
        cmocka_unit_test(what_is_too_long_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
