/* yaml.c - YAML to JSON: libyaml parses the syntax; this file resolves plain scalars, aliases and
 * merge keys, with limits on depth and on the number of values, because aliases can expand
 * exponentially. */
#include "yaml.h"
#include "file.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

struct reading {
    yaml_document_t document;
    size_t nodes;
    const char *where;
    struct pl_err *err;
};

/* A scalar without quotes becomes the type it looks like. */
static json_t *plain(const char *text)
{
    static const char *const yes[] = { "true", "yes", "on" }, *const no[] = { "false", "no",
                                                                              "off" };
    char *end;
    double real;
    for (size_t i = 0; i < PL_COUNT(yes); i++) {
        if (!strcasecmp(text, yes[i])) return json_true();
        if (!strcasecmp(text, no[i])) return json_false();
    }
    if (!*text || !strcmp(text, "~") || !strcasecmp(text, "null")) return json_null();
    errno = 0;
    long long whole = strtoll(text, &end, 10);
    if (!*end && !errno) return json_integer(whole);
    real = strtod(text, &end);
    if (!*end && isfinite(real) && strspn(text, "+-.0123456789eE") == strlen(text))
        return json_real(real);
    return json_string(text);
}

/* "<<: *other" and "<<: [*one, *two]": adds the keys of these mappings that the mapping itself
 * lacks. */
static int merge(struct reading *r, json_t *object, size_t line)
{
    json_t *from = json_incref(json_object_get(object, "<<")), *each;
    size_t i, n = json_is_array(from) ? json_array_size(from) : 1;
    int rc = PL_OK;
    json_object_del(object, "<<");
    for (i = 0; i < n && !rc; i++) {
        each = json_is_array(from) ? json_array_get(from, i) : from;
        if (!json_is_object(each))
            rc = pl_fail(r->err, PL_EFORMAT, "%s: line %zu: << names no mapping", r->where, line);
        else if (json_object_update_missing(object, each)) rc = PL_ENOMEM;
    }
    json_decref(from);
    return rc;
}

/* PL_OK and a new value in *out. */
static int convert(struct reading *r, json_t **out, int index, int depth)
{
    const yaml_node_t *node = yaml_document_get_node(&r->document, index);
    int rc = PL_OK;
    *out = NULL;
    if (depth > YAML_DEPTH_MAX || ++r->nodes > YAML_NODES_MAX)
        return pl_fail(r->err, PL_ELIMIT, "%s: more than %d values, or nested more than %d deep",
                       r->where, YAML_NODES_MAX, YAML_DEPTH_MAX);
    if (!node || node->type == YAML_NO_NODE) {
        *out = json_null();
    } else if (node->type == YAML_SCALAR_NODE) {
        const char *text = (const char *)node->data.scalar.value;
        if (strlen(text) != node->data.scalar.length)
            return pl_fail(r->err, PL_EFORMAT, "%s: line %zu: a text with a zero byte", r->where,
                           node->start_mark.line + 1);
        *out = node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE ? plain(text) : json_string(text);
    } else if (node->type == YAML_SEQUENCE_NODE) {
        *out = json_array();
        for (yaml_node_item_t *i = node->data.sequence.items.start;
             *out && !rc && i < node->data.sequence.items.top; i++) {
            json_t *value;
            rc = convert(r, &value, *i, depth + 1);
            if (!rc && json_array_append_new(*out, value)) rc = PL_ENOMEM;
        }
    } else {
        *out = json_object();
        for (yaml_node_pair_t *i = node->data.mapping.pairs.start;
             *out && !rc && i < node->data.mapping.pairs.top; i++) {
            const yaml_node_t *key = yaml_document_get_node(&r->document, i->key);
            json_t *value;
            if (!key || key->type != YAML_SCALAR_NODE) {
                rc = pl_fail(r->err, PL_EFORMAT, "%s: line %zu: a key is not text", r->where,
                             node->start_mark.line + 1);
                break;
            }
            rc = convert(r, &value, i->value, depth + 1);
            if (!rc && json_object_set_new(*out, (const char *)key->data.scalar.value, value))
                rc = pl_fail(r->err, PL_EFORMAT, "%s: line %zu: a key that is not UTF-8", r->where,
                             key->start_mark.line + 1);
        }
        if (*out && !rc && json_object_get(*out, "<<"))
            rc = merge(r, *out, node->start_mark.line + 1);
    }
    if (!*out) rc = pl_fail(r->err, PL_ENOMEM, "%s: no memory", r->where);
    if (rc) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}

int pl_yaml_parse(json_t **out, const char *text, size_t bytes, const char *where,
                  struct pl_err *err)
{
    struct reading r = { .where = where, .err = err };
    yaml_parser_t parser;
    int rc;
    *out = NULL;
    if (!yaml_parser_initialize(&parser)) return pl_fail(err, PL_ENOMEM, "%s: no memory", where);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, bytes);
    if (!yaml_parser_load(&parser, &r.document))
        rc = pl_fail(err, PL_EFORMAT, "%s: line %zu: not YAML: %s", where,
                     parser.problem_mark.line + 1, parser.problem ? parser.problem : "no memory");
    else {
        rc = yaml_document_get_root_node(&r.document)
                 ? convert(&r, out, 1, 0)
                 : pl_fail(err, PL_EFORMAT, "%s: empty", where);
        yaml_document_delete(&r.document);
    }
    yaml_parser_delete(&parser);
    return rc;
}

int pl_yaml_read(json_t **out, const char *path, struct pl_err *err)
{
    void *text;
    size_t n;
    int rc = pl_file_read(&text, &n, path, YAML_BYTES_MAX, err);
    *out = NULL;
    if (rc) return rc;
    rc = pl_yaml_parse(out, text, n, path, err);
    free(text);
    return rc;
}
