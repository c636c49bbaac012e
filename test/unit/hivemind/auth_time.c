/* auth_time.c - the expirations of access tokens, as Python reads them. */
#include "net/hivemind/moderation/auth.h"
#include "net/hivemind/kademlia/dht_result.h"
#include "net/hivemind/kademlia/dht_serve.h"
#include "net/hivemind/training/progress.h"

#include <math.h>
#include <openssl/evp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* A token's expiration: what the datetime.fromisoformat of Python 3.11 reads.
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
    (void)state;
    for (size_t i = 0; i < PL_COUNT(good); i++) {
        assert_int_equal(auth_time_parse(&time, good[i].text, strlen(good[i].text)), PL_OK);
        assert_true(time == (int64_t)(good[i].time * AUTH_SECOND));
    }
    for (size_t i = 0; i < PL_COUNT(bad); i++)
        assert_int_equal(auth_time_parse(&time, bad[i], strlen(bad[i])), PL_EFORMAT);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(token_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
