/* base58.c - long division between base 256 and base 58; leading zero bytes become leading ones. */
#include "base58.h"

#include <string.h>

static const char alphabet[] = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

int base58_encode(char *text, const uint8_t *data, size_t n)
{
    uint8_t digit[BASE58_TEXT_MAX]; /* least significant first */
    size_t digits = 0, zeros = 0, at = 0;
    if (n > BASE58_BYTES_MAX) return PL_ELIMIT;
    while (zeros < n && data[zeros] == 0) zeros++;
    for (size_t i = zeros; i < n; i++) {
        unsigned carry = data[i];
        for (size_t k = 0; k < digits; k++) {
            carry += 256u * digit[k];
            digit[k] = (uint8_t)(carry % 58);
            carry /= 58;
        }
        while (carry) {
            digit[digits++] = (uint8_t)(carry % 58);
            carry /= 58;
        }
    }
    for (size_t i = 0; i < zeros; i++) text[at++] = '1';
    while (digits) text[at++] = alphabet[digit[--digits]];
    text[at] = 0;
    return PL_OK;
}

int base58_decode(uint8_t *data, size_t *n, const char *text, size_t length)
{
    uint8_t byte[BASE58_BYTES_MAX]; /* least significant first */
    size_t bytes = 0, ones = 0;
    if (length >= BASE58_TEXT_MAX) return PL_ELIMIT;
    while (ones < length && text[ones] == '1') ones++;
    for (size_t i = ones; i < length; i++) {
        const char *found = text[i] ? strchr(alphabet, text[i]) : NULL;
        unsigned carry;
        if (!found) return PL_EFORMAT;
        carry = (unsigned)(found - alphabet);
        for (size_t k = 0; k < bytes; k++) {
            carry += 58u * byte[k];
            byte[k] = (uint8_t)carry;
            carry >>= 8;
        }
        while (carry) {
            if (bytes == sizeof byte) return PL_ELIMIT;
            byte[bytes++] = (uint8_t)carry;
            carry >>= 8;
        }
    }
    if (ones + bytes > BASE58_BYTES_MAX) return PL_ELIMIT;
    memset(data, 0, ones);
    for (size_t i = 0; i < bytes; i++) data[ones + i] = byte[bytes - 1 - i];
    *n = ones + bytes;
    return PL_OK;
}
