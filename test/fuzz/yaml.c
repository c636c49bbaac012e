/* yaml.c - any text as a codec's settings, and as GPT-2's, whose JSON is YAML, too. */
#include "data/models/gpt2_file.h"
#include "data/models/vqgan_file.h"
#include "data/files/yaml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct pl_vqgan_config config;
    struct pl_gpt2_config gpt2;
    json_t *json;
    if (pl_yaml_parse(&json, (const char *)data, bytes, "fuzz", NULL)) return 0;
    pl_vqgan_config_parse(&config, json, "fuzz", NULL);
    pl_gpt2_config_parse(&gpt2, json, "fuzz", NULL);
    json_decref(json);
    return 0;
}
