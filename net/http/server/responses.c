/* responses.c - responses that are made once and sent to every client. Security headers are part of
 * each: the page may load scripts, styles and pictures from this server only, may not be framed,
 * and its type is never guessed. Long texts have a second form, compressed once. */
#include "responses.h"
#include "data/parquet/page_codec.h"

#include <stdlib.h>
#include <string.h>

#define PACK_FROM 1024 /* bytes: below, headers are most of an answer */
#define PACK_LEVEL 6

int response_add_headers(struct MHD_Response *r, const char *type)
{
    static const char *const headers[][2] = {
        { "Content-Security-Policy",
          "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
          "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'" },
        { "X-Content-Type-Options", "nosniff" },
        { "X-Frame-Options", "DENY" },
        { "Referrer-Policy", "no-referrer" },
        { "Cross-Origin-Opener-Policy", "same-origin" },
        { "Cross-Origin-Resource-Policy", "same-origin" },
        { "Permissions-Policy", "camera=(), geolocation=(), microphone=()" },
        { "Cache-Control", "no-cache" },
        { "Vary", "Accept-Encoding" },
    };
    for (size_t i = 0; i < PL_COUNT(headers); i++)
        if (MHD.add_response_header(r, headers[i][0], headers[i][1]) != MHD_YES) return PL_ENOMEM;
    return MHD.add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type) == MHD_YES ? PL_OK
                                                                                     : PL_ENOMEM;
}

struct MHD_Response *response_of(const char *type, const void *data, size_t n)
{
    /* MHD copies the data; its prototype lacks a const. */
    struct MHD_Response *r = MHD.create_response_from_buffer(n, (void *)(uintptr_t)data,
                                                             MHD_RESPMEM_MUST_COPY);
    if (r && response_add_headers(r, type)) {
        MHD.destroy_response(r);
        return NULL;
    }
    return r;
}

struct MHD_Response *response_packed(const char *type, const void *data, size_t n)
{
    struct MHD_Response *r = NULL;
    void *packed;
    size_t bytes;
    if (n < PACK_FROM || pl_page_codec_pack(&packed, &bytes, data, n, PL_CODEC_GZIP, PACK_LEVEL))
        return NULL;
    if (bytes < n) r = response_of(type, packed, bytes);
    free(packed);
    if (r && MHD.add_response_header(r, "Content-Encoding", "gzip") != MHD_YES) {
        MHD.destroy_response(r);
        r = NULL;
    }
    return r;
}

int response_takes_gzip(struct MHD_Connection *connection)
{
    const char *list = MHD.lookup_connection_value(connection, MHD_HEADER_KIND,
                                                   MHD_HTTP_HEADER_ACCEPT_ENCODING);
    return list && strstr(list, "gzip") && !strstr(list, "gzip;q=0");
}

struct MHD_Response *response_text(const char *text)
{
    return response_of("text/plain; charset=utf-8", text, strlen(text));
}
