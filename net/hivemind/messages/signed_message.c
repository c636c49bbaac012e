/* signed_message.c - broadcasts that their sender cannot deny. BTARD lets peers accuse each
 * other of wrong sums, and an accusation is only as good as its evidence [BTARD 3.1]. So each
 * message is signed by its sender's libp2p key:
 *
 *   stage  from  to  SHA-256(body)  key  signature  body
 *     1     2    2        32        2+k     2+s      rest      bytes, integers big-endian
 *
 * The signature covers the hash, not the body: two heads suffice as a proof that a peer sent
 * different bodies to different receivers (equivocation), however long the bodies are. */
#include "signed_message.h"

#include <openssl/evp.h>
#include <string.h>

/* First in every signed statement, so that a signature made for another protocol or version is
 * worth nothing here (domain separation). Its terminating zero is signed, too. */
static const char PROTOCOL[] = "potluck btard 4";

void signed_hash(uint8_t hash[PL_HASH_BYTES], const void *data, size_t n)
{
    EVP_Digest(data, n, hash, NULL, EVP_sha256(), NULL);
}

/* The statement that is signed: protocol, round, stage, sender, receiver, hash of the body. The
 * round is unique to one all-reduce of one group; without it an old message could be replayed in
 * a later round. */
static int write_statement(struct bytes *out, const struct signed_message *m,
                           const uint8_t round[PL_HASH_BYTES])
{
    bytes_add(out, PROTOCOL, sizeof PROTOCOL);
    bytes_add(out, round, PL_HASH_BYTES);
    bytes_u8(out, m->stage);
    bytes_be16(out, m->from);
    bytes_be16(out, m->to);
    bytes_add(out, m->hash, PL_HASH_BYTES);
    return out->failed;
}

int signed_message_write(struct bytes *out, struct signed_message *m, const struct identity *me,
                         const uint8_t round[PL_HASH_BYTES])
{
    uint8_t signature[SIGNATURE_MAX];
    struct bytes statement = { 0 };
    size_t n = 0, inside;
    /* An Ed25519 peer ID contains its key; of other keys it is a hash, and then the key has to
     * come along. */
    int has_key = peer_id_key(&me->id, &inside) != NULL, rc;
    signed_hash(m->hash, m->body, m->n);
    rc = write_statement(&statement, m, round);
    if (!rc) rc = identity_sign(me, signature, &n, bytes_at(&statement), bytes_length(&statement));
    bytes_clear(&statement);
    if (rc) return rc;
    bytes_u8(out, m->stage);
    bytes_be16(out, m->from);
    bytes_be16(out, m->to);
    bytes_add(out, m->hash, PL_HASH_BYTES);
    bytes_be16(out, has_key ? 0 : (uint16_t)bytes_length(&me->public_key));
    if (!has_key) bytes_add(out, bytes_at(&me->public_key), bytes_length(&me->public_key));
    bytes_be16(out, (uint16_t)n);
    bytes_add(out, signature, n);
    if (m->n) bytes_add(out, m->body, m->n);
    return out->failed;
}

/* Views only; nothing is verified here, because a check of a signature costs a thousand times as
 * much and many messages are dropped before (another round, another stage, seen before). */
int signed_message_read(struct signed_message *m, const uint8_t *data, size_t n)
{
    struct cursor c = { data, n };
    const uint8_t *hash;
    uint16_t key_n, signature_n;
    memset(m, 0, sizeof *m);
    if (get_u8(&c, &m->stage) || get_be16(&c, &m->from) || get_be16(&c, &m->to) ||
        get_bytes(&c, &hash, PL_HASH_BYTES) || get_be16(&c, &key_n) || key_n > PUBLIC_KEY_MAX ||
        get_bytes(&c, &m->key, key_n) || get_be16(&c, &signature_n) ||
        signature_n > SIGNATURE_MAX || get_bytes(&c, &m->signature, signature_n))
        return PL_EFORMAT;
    memcpy(m->hash, hash, PL_HASH_BYTES);
    m->key_n = key_n;
    m->signature_n = signature_n;
    m->head_n = n - c.left;
    /* All that is left is the body. A proof of equivocation sends heads without one. */
    m->body = c.at;
    m->n = c.left;
    return PL_OK;
}

/* Verifies the head. Whether the body fits its hash is the caller's question: it may not have a
 * body. */
int signed_message_check(const struct signed_message *m, const uint8_t round[PL_HASH_BYTES],
                         const struct peer_id *peer)
{
    size_t key_n;
    const uint8_t *key = peer_id_key(peer, &key_n);
    struct bytes statement = { 0 };
    int rc;
    if (!key) { /* not an Ed25519 ID: the key in the message must hash to the peer's ID */
        struct peer_id named;
        peer_id_of_key(&named, m->key, m->key_n);
        if (!peer_id_equal(&named, peer)) return PL_EPROTO;
        key = m->key;
        key_n = m->key_n;
    }
    rc = write_statement(&statement, m, round);
    if (!rc)
        rc = public_key_verify(key, key_n, bytes_at(&statement), bytes_length(&statement),
                               m->signature, m->signature_n);
    bytes_clear(&statement);
    return rc;
}
