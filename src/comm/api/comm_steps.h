/* Lists which messages, and which accesses of shared memory, a rank would make in a collective
 * operation, without a communicator, for models of cost. */
#ifndef TSR_COMM_API_COMM_STEPS_H
#define TSR_COMM_API_COMM_STEPS_H

#include "comm/collective_call.h"

typedef enum tsr__comm_step_kind {
    TSR__COMM_STEP_SEND = 1,  /* a message of `bytes` to the rank `peer` */
    TSR__COMM_STEP_RECV = 2,  /* a message of `bytes` from the rank `peer` */
    TSR__COMM_STEP_MEMORY = 3 /* a collective of the ranks `peer` to `peer + ranks − 1` through
                               * shared memory, in which each rank reads `bytes` of others */
} tsr__comm_step_kind;

/* One thing that a rank does in a collective. An algorithm is a sequence of rounds: all steps of a
 * round start together, and the next round starts when they have ended. The n-th message that a
 * rank sends to another is the n-th that the other receives from it. */
typedef struct tsr__comm_step {
    tsr__comm_step_kind kind;
    uint32_t round;
    int peer, ranks;
    uint64_t bytes;
} tsr__comm_step;

typedef struct tsr__comm_steps_params {
    /* an all-reduce, or a reduce-scatter or all-gather of equal blocks */
    tsr__call_kind collective;
    int size;         /* the number of ranks, 1 to 4096 */
    const int *hosts; /* [size]: the number of each rank's host */
    int rank;         /* the rank whose steps are listed */
    uint64_t bytes;   /* the bytes of the complete data, which is taken as f32 elements */
} tsr__comm_steps_params;
#define tsr__comm_steps_params(...) (&(tsr__comm_steps_params){__VA_ARGS__})

/* Lists what a rank would do in a collective, for models of cost: the messages and memory accesses
 * of the algorithm that the library would choose. Needs no communicator and no other process.
 * Writes the first `capacity` steps to the caller's array steps[capacity], in the order of their
 * rounds, and the number of all steps to `count`, which may be larger. `steps` may be NULL if
 * `capacity` is 0. A rank alone has no steps. Errors: TSR_ERR_INVALID (a size, rank or collective
 * out of range), TSR_ERR_NO_MEMORY; `count` is then unchanged. */
tsr_status tsr__comm_steps(const tsr__comm_steps_params *params, uint64_t capacity,
                           tsr__comm_step *steps, uint64_t *count) TSR_NODISCARD;

#endif
