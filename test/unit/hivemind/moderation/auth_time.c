/* auth_time.c - the expirations of access tokens, as Python reads them. */
#include "net/hivemind/moderation/auth.h"
#include "net/hivemind/kademlia/dht_result.h"
#include "net/hivemind/kademlia/dht_serve.h"
#include "net/hivemind/progress/progress.h"
#include "test/unit/unit.h"

#include <math.h>
#include <openssl/evp.h>

/* As auth_time_parse; bytes behind the text, which it must not read, change nothing. */
static int parse(int64_t *micros, const char *text)
{
    char longer[64];
    int64_t again;
    const size_t n = strlen(text);
    int rc = auth_time_parse(micros, text, n);
    for (const char *behind = "7W-:."; *behind; behind++) {
        snprintf(longer, sizeof longer, "%s%c7", text, *behind);
        assert_int_equal(auth_time_parse(&again, longer, n), rc);
        if (!rc) assert_true(again == *micros);
    }
    return rc;
}

/* A token's expiration, read as datetime.fromisoformat of Python 3.11 does.
 * test/interop/authority.py compares thousands with the interpreter itself. */
static void token_times(void **state)
{
    static const struct {
        const char *text;
        double time;
    } good[] = { { "2027-06-01 12:00:00.250000", 1811851200.25 },
                 { "2027-06-01T12:00:00", 1811851200 },
                 { "2027-06-01 12:00:00.125", 1811851200.125 },
                 { "2027-06-01 12:00", 1811851200 },
                 { "2027-06-01 12", 1811851200 },
                 { "2027-06-01", 1811808000 },
                 { "20270601T120000", 1811851200 },
                 { "20270601 1200", 1811851200 },
                 { "20270601", 1811808000 },
                 { "2027-W22-2T12", 1811851200 },
                 { "2027W222T12", 1811851200 },
                 { "2027-W22", 1811721600 },
                 { "2027W22", 1811721600 },
                 { "2026-W53-7", 1798934400 },
                 { "2027-06-01 12:00:00,5", 1811851200.5 },
                 { "2027-06-01 12.5", 1811851200.5 },
                 { "2027-06-01 12:00:00.1250009", 1811851200.125 },
                 { "2027-06-01\xc3\xa9"
                   "12",
                   1811851200 },
                 { "2027W222012", 1811851200 },
                 { "2027-06-01 12000025", 1811851200.25 } };
    static const char *const bad[] = { "",
                                       " ",
                                       "soon",
                                       "2027-06-01 ",
                                       "2027-06-01 12:",
                                       "2027-06-01 12:00:00.",
                                       "2027-6-1",
                                       "2027-06-01 12:00:00+00:00",
                                       "2027-06-01 12:00:00Z",
                                       "20270601T1200000",
                                       "2027-W53-1",
                                       "2027-02-30 00:00:00",
                                       "2027-06-01 24:00:00",
                                       "2027-06-01 23:59:60",
                                       "2027-06-01 1",
                                       "202706-01",
                                       "2027-0601",
                                       "2027-W22-8",
                                       "2027-W00-1",
                                       "2027-W222",
                                       "2027-06-01 1200:00",
                                       "2027-06-01 12:0000",
                                       "0000-01-01",
                                       "9999-W52-6",
                                       "2027-06-01\xc3",
                                       "2027-06-01 12:00:00.1x" };
    char text[AUTH_TIME_TEXT];
    int64_t time;
    for (size_t i = 0; i < PL_COUNT(good); i++) {
        assert_int_equal(parse(&time, good[i].text), PL_OK);
        assert_true(time == (int64_t)(good[i].time * AUTH_SECOND));
    }
    for (size_t i = 0; i < PL_COUNT(bad); i++) assert_int_equal(parse(&time, bad[i]), PL_EFORMAT);
    assert_int_equal(auth_time_parse(&time, "2027-06-01 12:00\0", 17), PL_EFORMAT);
    assert_int_equal(auth_time_write(text, 1811851200250000), PL_OK);
    assert_string_equal(text, "2027-06-01 12:00:00.250000");
    assert_int_equal(auth_time_write(text, 1811851200000000), PL_OK);
    assert_string_equal(text, "2027-06-01 12:00:00");
    assert_int_equal(auth_time_write(text, -1), PL_OK);
    assert_string_equal(text, "1969-12-31 23:59:59.999999");
    assert_int_equal(auth_time_write(text, INT64_MAX), PL_EUSE);
    assert_int_equal(auth_time_write(text, 300000000000000000), PL_EUSE);
}

/* The bounds of the format: the first and the last day, minutes and seconds up to 59, every length
 * of a week, a separator of one to four bytes, a fraction of any length. */
static void bounds(void **state)
{
    static const struct {
        const char *text;
        int64_t micros;
    } good[] = { { "0001-01-01", -62135596800000000 },
                 { "0001-W01-1", -62135596800000000 },
                 { "9999-12-31", 253402214400000000 },
                 { "9999-W52-5", 253402214400000000 },
                 { "9999-12-31 23:59:59.999999", 253402300799999999 },
                 { "2027-06-01 12:59", 1811854740000000 },
                 { "2027-06-01 12:34:56", 1811853296000000 },
                 { "20270601 12:34", 1811853240000000 },
                 { "2027-W01-1", 1799020800000000 },
                 { "2026-W01-7", 1767484800000000 },
                 { "2027-W22T12", 1811764800000000 },
                 { "2027W22 12", 1811764800000000 },
                 { "2027W221T10", 1811757600000000 },
                 { "2027-06-01\x7f"
                   "12",
                   1811851200000000 },
                 { "2027-06-01\xe2\x82\xac"
                   "12",
                   1811851200000000 },
                 { "2027-06-01\xf0\x9f\x98\x80"
                   "12",
                   1811851200000000 },
                 { "2027-06-01T12:34:56.12345", 1811853296123450 },
                 { "2027-06-01 12:34:56.123456789", 1811853296123456 } };
    static const char *const bad[] = {
        "123456",     "1234567",    "202-06-01",  "2027060",          "2027W2",
        "2027W2x",    "2027W2211",  "2027-W2",    "2027-W22-",        "2027-W22-x",
        "2027-W22x1", "2027-W221",  "2027-W2211", "2027-W22-1T1",     "2027-13-01",
        "2027-0x-01", "2027-06-0x", "2027-06x01", "2027-06-01 12:60", "2027-06-01 12:34:56.1234567x"
    };
    char text[AUTH_TIME_TEXT];
    int64_t micros;
    for (size_t i = 0; i < PL_COUNT(good); i++) {
        if (parse(&micros, good[i].text)) fail_msg("%s", good[i].text);
        if (micros != good[i].micros) fail_msg("%s: %lld", good[i].text, (long long)micros);
    }
    for (size_t i = 0; i < PL_COUNT(bad); i++)
        if (parse(&micros, bad[i]) != PL_EFORMAT) fail_msg("%s", bad[i]);
    /* The first and the last moment that have a text, and those next to them. */
    assert_int_equal(auth_time_write(text, -62135596800000000), PL_OK);
    assert_string_equal(text, "0001-01-01 00:00:00");
    assert_int_equal(auth_time_write(text, 253402300799999999), PL_OK);
    assert_string_equal(text, "9999-12-31 23:59:59.999999");
    assert_int_equal(auth_time_write(text, -62135596800000001), PL_EUSE);
    assert_string_equal(text, "");
    assert_int_equal(auth_time_write(text, 253402300800000000), PL_EUSE);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds),
        cmocka_unit_test(token_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
