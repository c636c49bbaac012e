/* http_list.c - any bytes as a list of shards. */
#include "net/http/client/shard_list.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct http_list list;
    if (!http_list_parse(&list, (const char *)data, bytes, "http://host/folder/list?x", NULL))
        http_list_clear(&list);
    return 0;
}
