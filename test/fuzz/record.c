/* record.c - any bytes as a record's subkey and value, under a free key and the guarded ones, and
 * as tokens and signed messages. The input: a byte for the key, one for the subkey's length. */
#include "net/hivemind/moderation/auth.h"
#include "net/hivemind/progress/digest.h"
#include "net/hivemind/progress/metrics.h"
#include "net/hivemind/progress/progress.h"
#include "net/hivemind/progress/peer_report.h"
#include "net/hivemind/records/validate.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void tokens(const uint8_t *data, size_t n)
{
    static struct auth a;
    static struct rsa_key key;
    struct auth_token token;
    uint8_t nonce[AUTH_NONCE] = { 0 };
    const uint8_t *plain;
    size_t plain_n;
    char text[AUTH_TIME_TEXT];
    int64_t time, again;
    struct pl_err err;
    if (!key.key) {
        if (rsa_key_make(&key, &err)) abort();
        a.key = &key;
        a.authority = key.key;
    }
    if (!auth_token_read(&token, data, n)) auth_token_clear(&token);
    if (!auth_time_parse(&time, data, n) &&
        (auth_time_write(text, time) || auth_time_parse(&again, text, strlen(text)) ||
         again != time))
        abort();
    if (!auth_check_request(&plain, &plain_n, nonce, &a, 0, data, n, &err)) abort(); /* forged! */
    if (!auth_check_response(&plain, &plain_n, &a, nonce, 0, data, n, &err)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct validators v;
    struct bytes stripped = { 0 };
    struct progress_record p;
    struct metrics_record m;
    struct digest_record d;
    struct report_record t;
    struct record r = { .key = data, .key_n = 1, .expiration = 1 };
    struct pl_err err;
    size_t cut;
    if (n < 2) return 0;
    if (!v.count) validators_add_run(&v, "run");
    if (data[0] % 4 == 3) {
        tokens(data + 2, n - 2);
        return 0;
    }
    if (data[0] % 4) { /* 1, 2; from 128 on the third */
        r.key = v.guards[data[0] >= 128 ? 2 : data[0] % 4 - 1].key.bytes;
        r.key_n = DHT_ID_BYTES;
    }
    cut = data[1] < n - 2 ? data[1] : n - 2;
    r.subkey = data + 2;
    r.subkey_n = cut;
    r.value = data + 2 + cut;
    r.n = n - 2 - cut;
    record_check(&v, &r, &err);
    record_strip(&stripped, r.value, r.n);
    progress_read(&p, bytes_at(&stripped), bytes_length(&stripped), &err);
    metrics_read(&m, bytes_at(&stripped), bytes_length(&stripped), &err);
    if (!digest_read(&d, bytes_at(&stripped), bytes_length(&stripped), &err) &&
        digest_judge(&d, 1, 1) < 0)
        abort();
    report_read(&t, bytes_at(&stripped), bytes_length(&stripped), &err);
    bytes_clear(&stripped);
    return 0;
}
