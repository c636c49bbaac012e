/* vqgan_json.c - VQGAN's configuration from and to JSON. */
#include "vqgan_file.h"
#include "data/files/json.h"

#include <string.h>

static int get_list(int *out, int *count, const json_t *object, const char *key, const char *where,
                    struct pl_err *err)
{
    const json_t *list = json_object_get(object, key), *value;
    size_t i;
    if (!json_is_array(list) || json_array_size(list) > PL_VQ_LEVELS_MAX)
        return pl_fail(err, PL_EFORMAT, "%s: %s must be a list of at most %d numbers", where, key,
                       PL_VQ_LEVELS_MAX);
    json_array_foreach(list, i, value)
    {
        json_int_t n = json_integer_value(value);
        if (!json_is_integer(value) || n < 0 || n > 1 << 24)
            return pl_fail(err, PL_EFORMAT, "%s: %s holds something but whole numbers", where, key);
        out[i] = (int)n;
    }
    *count = (int)json_array_size(list);
    return PL_OK;
}

/* Settings of taming-transformers that would change the network are refused unless absent or
 * null. */
static int check_kind(const json_t *params, const json_t *dd, const char *where, struct pl_err *err)
{
    const json_t *conv = json_object_get(dd, "resamp_with_conv"),
                 *attention = json_object_get(dd, "attn_type"),
                 *twice = json_object_get(dd, "double_z"),
                 *remap = json_object_get(params, "remap"),
                 *kl = json_object_get(params, "kl_weight");
    if (json_is_true(twice))
        return pl_fail(err, PL_EUSE, "%s: double_z models have no codes", where);
    if (twice && !json_is_false(twice))
        return pl_fail(err, PL_EFORMAT, "%s: double_z is neither true nor false", where);
    if (conv && !json_is_true(conv))
        return pl_fail(err, PL_EUSE, "%s: resamp_with_conv must be true", where);
    if (attention &&
        (!json_is_string(attention) || strcmp(json_string_value(attention), "vanilla")))
        return pl_fail(err, PL_EUSE, "%s: attn_type must be vanilla", where);
    if (remap && !json_is_null(remap))
        return pl_fail(err, PL_EUSE, "%s: codes with a remap are not known", where);
    if (kl && !json_is_null(kl) && !json_is_number(kl))
        return pl_fail(err, PL_EFORMAT, "%s: kl_weight is not a number", where);
    return PL_OK;
}

int pl_vqgan_config_parse(struct pl_vqgan_config *c, const json_t *json, const char *where,
                          struct pl_err *err)
{
    const json_t *dd = json_object_get(json, "ddconfig"), *kl = json_object_get(json, "kl_weight");
    struct pl_err why;
    int rc, channels;
    memset(c, 0, sizeof *c);
    if (!json_is_object(dd))
        return pl_fail(err, PL_EFORMAT, "%s: no VQGAN configuration (no object 'ddconfig')", where);
    rc = pl_json_int(&c->embed_dim, json, "embed_dim", 0, where, err);
    if (!rc) rc = pl_json_int(&c->n_embed, json, "n_embed", 0, where, err);
    if (!rc) rc = pl_json_int(&c->ch, dd, "ch", 0, where, err);
    if (!rc && !json_object_get(dd, "ch_mult")) { /* taming-transformers' default */
        c->levels = 4;
        for (int i = 0; i < 4; i++) c->ch_mult[i] = 1 << i;
    } else if (!rc) rc = get_list(c->ch_mult, &c->levels, dd, "ch_mult", where, err);
    if (!rc) rc = pl_json_int(&c->num_res_blocks, dd, "num_res_blocks", 0, where, err);
    if (!rc) rc = get_list(c->attn_resolutions, &c->attns, dd, "attn_resolutions", where, err);
    if (!rc) rc = pl_json_int(&c->resolution, dd, "resolution", 0, where, err);
    if (!rc) rc = pl_json_int(&c->z_channels, dd, "z_channels", 0, where, err);
    if (!rc) rc = check_kind(json, dd, where, err);
    if (rc) return rc;
    for (int i = 0; i < 2; i++) {
        const char *key = i ? "out_ch" : "in_channels";
        if (!json_object_get(dd, key)) continue;
        if ((rc = pl_json_int(&channels, dd, key, 0, where, err))) return rc;
        if (channels != 3)
            return pl_fail(err, PL_EUSE, "%s: %s is %d, expected 3", where, key, channels);
    }
    c->norm_groups = PL_VQ_GROUPS;
    if (json_object_get(dd, "norm_groups") &&
        (rc = pl_json_int(&c->norm_groups, dd, "norm_groups", 0, where, err)))
        return rc;
    c->gumbel = json_is_number(kl);
    c->kl_weight = (float)json_number_value(kl);
    if ((rc = pl_vqgan_check(c, &why))) return pl_fail(err, rc, "%s: %.400s", where, why.text);
    return PL_OK;
}

static json_t *list_json(const int *list, int count)
{
    json_t *out = json_array();
    for (int i = 0; i < count; i++) json_array_append_new(out, json_integer(list[i]));
    return out;
}

json_t *pl_vqgan_config_json(const struct pl_vqgan_config *c)
{
    json_t *dd = json_pack("{s:i, s:o, s:i, s:o, s:i, s:i, s:i, s:i, s:b}", "ch", c->ch, "ch_mult",
                           list_json(c->ch_mult, c->levels), "num_res_blocks", c->num_res_blocks,
                           "attn_resolutions", list_json(c->attn_resolutions, c->attns),
                           "resolution", c->resolution, "z_channels", c->z_channels, "in_channels",
                           3, "out_ch", 3, "double_z", 0);
    json_t *out = json_pack("{s:i, s:i, s:o}", "embed_dim", c->embed_dim, "n_embed", c->n_embed,
                            "ddconfig", dd);
    if (out && c->norm_groups != PL_VQ_GROUPS)
        json_object_set_new(dd, "norm_groups", json_integer(c->norm_groups));
    if (out && c->gumbel) json_object_set_new(out, "kl_weight", json_real(c->kl_weight));
    return out;
}
