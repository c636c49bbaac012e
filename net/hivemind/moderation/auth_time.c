/* auth_time.c - the expiration of an access token, as text. Python peers parse it with
 * datetime.fromisoformat (3.11 and later), which accepts many forms of ISO 8601: "2021-12-05
 * 10:20:30", "20211205T1020", "2021-W48-7 10,5". Our peers must accept exactly the tokens that
 * Python peers accept, so this parser follows Python's, also where it is lenient. Older Pythons
 * accept less, so what we issue is written in the one form that all of them read. */
#include "auth.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define DAY 86400 /* s: UTC as in datetime has no leap seconds */

static int is_digit(char c) { return c >= '0' && c <= '9'; }

/* Exactly `count` decimal digits; moves `at` behind them. */
static int digits(const char **at, const char *end, int count, int *value)
{
    *value = 0;
    for (int i = 0; i < count; i++, (*at)++) {
        if (*at == end || !is_digit(**at)) return 0;
        *value = 10 * *value + (**at - '0');
    }
    return 1;
}

/* The length of the date, after which one arbitrary character separates the time; n if there is
 * only a date. Without separators digits could belong to either part; Python then takes an odd
 * or even number of digits so that pairs remain for the time. SIZE_MAX: no date at all. */
static size_t day_length(const char *s, size_t n)
{
    size_t i = 7;
    if (n < 7) return SIZE_MAX;
    if (n == 7) return 7; /* YYYYWww, the shortest */
    /* With dashes: YYYY-MM-DD (10), YYYY-Www (8), YYYY-Www-D (10). */
    if (s[4] == '-') {
        if (s[5] != 'W') return 10;
        if (n == 8 || s[8] != '-') return 8;
        if (n == 9) return SIZE_MAX;
        return n > 10 && is_digit(s[10]) ? 8 : 10;
    }
    /* Without: YYYYMMDD (8), YYYYWww (7), YYYYWwwD (8); the parity of the digits decides. */
    if (s[4] != 'W') return 8;
    while (i < n && is_digit(s[i])) i++;
    return i < 9 ? i : i % 2 ? 8 : 7;
}

/* timegm also accepts days beyond a month's end; day_part finds those by converting back. */
static int64_t days_since_1970(int year, int month, int day)
{
    struct tm t = { .tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day };
    return timegm(&t) / DAY;
}

/* The Monday of week 1, which holds January 4th. 1970-01-01 was a Thursday. */
static int64_t first_monday(int year)
{
    int64_t fourth = days_since_1970(year, 1, 4);
    return fourth - ((fourth + 3) % 7 + 7) % 7;
}

/* ISO week dates: week 1 is the week of January 4th, days count from Monday = 1. */
static int week_date(const char *at, const char *end, int year, int dashed, int64_t *days)
{
    int week, day = 1;
    if (!digits(&at, end, 2, &week)) return 0;
    if (at < end && dashed && *at++ != '-') return 0;
    if (at < end && !digits(&at, end, 1, &day)) return 0;
    /* Some years have 52 weeks, some 53: week 53 must begin before the next year's week 1. Python's
     * dates are those of the years 1 to 9999. */
    *days = first_monday(year) + 7 * (week - 1) + day - 1;
    return at == end && week >= 1 && day >= 1 && day <= 7 &&
           first_monday(year) + 7 * (week - 1) < first_monday(year + 1) &&
           *days <= days_since_1970(9999, 12, 31) && *days >= days_since_1970(1, 1, 1);
}

/* YYYY-MM-DD, YYYYMMDD, YYYY-Www[-D], YYYYWww[D] */
static int day_part(const char *at, const char *end, int64_t *days)
{
    int year, month, day, dashed;
    struct tm t;
    time_t seconds;
    if (!digits(&at, end, 4, &year) || year < 1) return 0;
    dashed = at < end && *at == '-';
    at += dashed;
    if (at < end && *at == 'W') return week_date(at + 1, end, year, dashed, days);
    if (!digits(&at, end, 2, &month)) return 0;
    if (dashed && (at == end || *at++ != '-')) return 0;
    if (!digits(&at, end, 2, &day) || at != end) return 0;
    *days = days_since_1970(year, month, day);
    /* February 30th would come back as March 2nd. */
    seconds = (time_t)*days * DAY;
    return gmtime_r(&seconds, &t) && t.tm_year == year - 1900 && t.tm_mon == month - 1 &&
           t.tm_mday == day;
}

/* HH[:MM[:SS]] or HH[MM[SS]], then a fraction after a point or a comma: six digits count, more
 * may follow. After seconds Python's pure reader also takes a fraction after a colon, or without
 * any separator if it has two digits or more. Time zones are refused: tokens are in UTC without
 * a zone. */
static int clock_part(const char *at, const char *end, int64_t *all)
{
    int part[3] = { 0, 0, 0 }, micros = 0, colons = 0, count;
    for (int i = 0; i < 3; i++) {
        if (!digits(&at, end, 2, &part[i])) return 0;
        if (at == end) goto done; /* hours alone, or hours and minutes, are a time */
        if (at + 1 == end) return 0;
        if (i == 0) colons = *at == ':';
        if (*at == '.' || *at == ',') {
            at++;
            break;
        }
        if (colons && *at++ != ':') return 0;
    }
    /* ".5" is 500,000 microseconds; digits beyond the sixth are cut off. */
    count = end - at < 6 ? (int)(end - at) : 6;
    if (!count || !digits(&at, end, count, &micros)) return 0;
    for (; count < 6; count++) micros *= 10;
    while (at < end && is_digit(*at)) at++;
    if (at != end) return 0;
done:
    *all = AUTH_SECOND * (3600 * part[0] + 60 * part[1] + part[2]) + micros;
    return part[0] < 24 && part[1] < 60 && part[2] < 60;
}

/* Bytes of a UTF-8 character, from its first byte: Python counts the separator as one character. */
static size_t character(unsigned char c)
{
    return c < 0x80 ? 1 : (c & 0xf0) == 0xe0 ? 3 : (c & 0xf0) == 0xf0 ? 4 : 2;
}

/* date [any character time]: "2021-12-05T10:20:30" and "2021-12-05 10:20:30" are one moment. */
int auth_time_parse(int64_t *micros, const void *text, size_t n)
{
    const char *s = text;
    size_t day = day_length(s, n), skip;
    int64_t days, clock = 0;
    if (day > n || memchr(s, 0, n) || !day_part(s, s + day, &days)) return PL_EFORMAT;
    if (n > day) {
        skip = day + character((unsigned char)s[day]);
        if (skip > n || !clock_part(s + skip, s + n, &clock)) return PL_EFORMAT;
    }
    *micros = days * DAY * AUTH_SECOND + clock;
    return PL_OK;
}

/* str(datetime) leaves the fraction out if it is zero, so the signed text does, too. */
int auth_time_write(char text[AUTH_TIME_TEXT], int64_t micros)
{
    /* The fraction of a second, from 0 up also before 1970. */
    int64_t rest = (micros % AUTH_SECOND + AUTH_SECOND) % AUTH_SECOND;
    time_t seconds = (time_t)((micros - rest) / AUTH_SECOND);
    struct tm utc;
    size_t n;
    text[0] = 0;
    if (!gmtime_r(&seconds, &utc) || utc.tm_year < 1 - 1900 || utc.tm_year > 9999 - 1900)
        return PL_EUSE;
    n = (size_t)snprintf(text, AUTH_TIME_TEXT, "%04d-%02d-%02d %02d:%02d:%02d", utc.tm_year + 1900,
                         utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec);
    if (rest) snprintf(text + n, AUTH_TIME_TEXT - n, ".%06d", (int)rest);
    return PL_OK;
}
