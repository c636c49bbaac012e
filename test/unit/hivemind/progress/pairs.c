/* pairs.c - groups that are drawn in each epoch: all peers draw the same, nobody is left over, and
 * everybody meets everybody. */
#include "net/hivemind/progress/pairs.h"
#include "test/unit/unit.h"

#include <string.h>

#define PEERS_MAX 9
#define EPOCHS 200

static struct peer_id peer(size_t number)
{
    struct peer_id id = { .length = 34 };
    memcpy(id.bytes, "\x12\x20", 2);
    id.bytes[5] = (uint8_t)(number * 97); /* another order than their numbers' */
    id.bytes[6] = (uint8_t)number;
    return id;
}

/* As this peer sees the swarm: itself first, and the others in an order of its own. */
static int draw(char bits[GROUP_BITS_MAX + 1], size_t self, size_t count, int group, int64_t epoch)
{
    struct peer_id peers[PEERS_MAX], own = peer(self);
    for (size_t i = 0; i < count; i++) peers[i] = peer((self + i * (count - 1)) % count);
    return pairs_draw(bits, peers, count, &own, group, epoch);
}

static void all_draw_the_same_groups(void **state)
{
    (void)state;
    for (size_t count = 1; count <= PEERS_MAX; count++)
        for (int group = 2; group <= 3; group++)
            for (int64_t epoch = 0; epoch < 20; epoch++) {
                char bits[PEERS_MAX][GROUP_BITS_MAX + 1];
                int size[PEERS_MAX];
                for (size_t i = 0; i < count; i++) size[i] = draw(bits[i], i, count, group, epoch);
                for (size_t i = 0; i < count; i++) {
                    int same = 0;
                    for (size_t k = 0; k < count; k++) same += !strcmp(bits[i], bits[k]);
                    assert_int_equal(same, size[i]);
                    assert_true(count < (size_t)group || size[i] >= group);
                    assert_true(size[i] < 2 * group);
                }
            }
}

static void everybody_meets_everybody(void **state)
{
    int met[PEERS_MAX][PEERS_MAX] = { { 0 } };
    (void)state;
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
        char bits[PEERS_MAX][GROUP_BITS_MAX + 1];
        for (size_t i = 0; i < PEERS_MAX; i++) draw(bits[i], i, PEERS_MAX, 2, epoch);
        for (size_t i = 0; i < PEERS_MAX; i++)
            for (size_t k = 0; k < PEERS_MAX; k++) met[i][k] += !strcmp(bits[i], bits[k]);
    }
    /* Four groups, one of three: a peer has 10 / 9 partners of 8 on average, so each of them in
     * every seventh epoch. */
    for (size_t i = 0; i < PEERS_MAX; i++)
        for (size_t k = 0; k < i; k++) {
            assert_true(met[i][k] > EPOCHS / 7 / 3);
            assert_true(met[i][k] < EPOCHS / 7 * 3);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(all_draw_the_same_groups),
                                        cmocka_unit_test(everybody_meets_everybody) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
