/* show_tokens.c - a T5 tokenizer: how many pieces it has, and how it splits a caption. */
#include "show.h"
#include "data/text/unigram.h"
#include "cmd/common/plural.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS_MAX 4096 /* of a caption that are shown; a model takes 256 */

static int print_token(const struct unigram *u, int32_t id, int json)
{
    char *text;
    size_t n;
    if (pl_unigram_decode(&text, &n, u, &id, 1)) return PL_ENOMEM;
    if (json) printf("{\"id\": %d, \"text\": \"", id);
    else printf("%7d  \"", id);
    show_text(text, n, json);
    puts(json ? "\"}" : "\"");
    free(text);
    return PL_OK;
}

int show_tokens(const char *path, const struct show_options *show, struct pl_err *err)
{
    static int32_t ids[TOKENS_MAX];
    struct unigram *u;
    size_t count = 0;
    int rc = pl_unigram_open(&u, path, err);
    if (rc) return rc;
    if (!show->json)
        printf("%s: T5 tokenizer, %d ids of which %d are extra\n", path, pl_unigram_size(u),
               UNIGRAM_EXTRA_IDS);
    if (show->caption) {
        rc = pl_unigram_encode(ids, TOKENS_MAX, &count, u, show->caption, strlen(show->caption),
                               UNIGRAM_TRANSFORMERS);
        if (!rc && !show->json) printf("the caption is %zu token%s:\n", count, PLURAL(count));
        for (size_t i = 0; !rc && i < count && i < TOKENS_MAX; i++)
            rc = print_token(u, ids[i], show->json);
        if (rc) pl_fail(err, rc, "%s: no memory", path);
    }
    pl_unigram_close(u);
    return rc;
}
