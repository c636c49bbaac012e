/* base58.h - base58btc, the text form of peer IDs. [spec libp2p-wire 2] */
#ifndef PL_BASE58_H
#define PL_BASE58_H

#include "ref/base.h"

#define BASE58_BYTES_MAX 128 /* identifiers only: the work is quadratic */
#define BASE58_TEXT_MAX 192  /* characters, the zero byte included */

/* text receives at most BASE58_TEXT_MAX characters. PL_ELIMIT above BASE58_BYTES_MAX bytes. */
int base58_encode(char *text, const uint8_t *data, size_t n);
/* data holds BASE58_BYTES_MAX bytes. PL_EFORMAT for a foreign character, PL_ELIMIT if too long. */
int base58_decode(uint8_t *data, size_t *n, const char *text, size_t length);

#endif
