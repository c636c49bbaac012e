/* averaging_code.h - the numbers that groups answer each other with. [spec hivemind-protocol
 * 4.3] */
#ifndef PL_AVERAGING_CODE_H
#define PL_AVERAGING_CODE_H

/* clang-format off */
#define AVERAGING_CODES(X) \
    X(NO_CODE) X(REQUEST_JOIN) X(ACCEPTED) X(BEGIN_ALLREDUCE) X(PART_FOR_AVERAGING) \
    X(AVERAGED_PART) X(NOT_DECLARED) X(NOT_A_LEADER) X(BAD_EXPIRATION_TIME) \
    X(BAD_SCHEMA_HASH) X(BAD_GROUP_ID) \
    X(DUPLICATE_PEER_ID) X(GROUP_IS_FULL) X(NOT_LOOKING_FOR_GROUP) X(PROTOCOL_VIOLATION) \
    X(INTERNAL_ERROR) X(CANCELLED) X(GROUP_DISBANDED) X(BAD_GROUP_KEY)
/* clang-format on */

#define CODE(name) MSG_##name,
enum averaging_code { AVERAGING_CODES(CODE) MSG_CODES };
#undef CODE

#endif
