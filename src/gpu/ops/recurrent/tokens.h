/* Checks of tensors of tokens, [batch, tokens, …], for layers with a state. */
#ifndef TSR_GPU_OPS_RECURRENT_TOKENS_H
#define TSR_GPU_OPS_RECURRENT_TOKENS_H

#include "gpu/stream/stream.h"

/* The sizes that the tensors of a call share. */
typedef struct tsr__tokens {
    const char *op;
    tsr_stream *stream;
    int64_t batch, tokens;
    /* i32 [batch] or NULL: see tessera/recurrent.h. `slots`: how many states there are then */
    const tsr_tensor *read_slots, *write_slots;
    int64_t slots;
    bool each_token; /* write_slots is [batch, tokens] */
} tsr__tokens;

/* Checks that `tensor` is [batch, tokens, …], with `ndim` dimensions of which the last ones are
 * `heads` (if ndim is 4) and `width`, in f32, or in any float if `any_float` is true. What belongs
 * to a token must be contiguous, and tokens at equal distances: *stride elements, which fit 31 bits
 * as bytes. */
tsr_status tsr__tokens_check(const tsr__tokens *tokens, const char *name, const tsr_tensor *tensor,
                             int64_t heads, int64_t width, int ndim, bool any_float,
                             uint32_t *stride) TSR_NODISCARD;
/* Checks that `tensor` is f32, contiguous and of this shape. */
tsr_status tsr__tokens_check_dense(const tsr__tokens *tokens, const char *name,
                                   const tsr_tensor *tensor, int ndim,
                                   const int64_t *shape) TSR_NODISCARD;
/* Checks the tensors of a call that say which tokens count; either may be NULL. */
tsr_status tsr__tokens_check_documents(const tsr__tokens *tokens, const tsr_tensor *lengths,
                                       const tsr_tensor *starts,
                                       const tsr_tensor *read_slots) TSR_NODISCARD;
/* Checks the lists of slots, and sets the number of slots that `state` and `new_state` have.
 * A slot has `rows` rows. The shapes of both must be checked afterwards, with the first dimension
 * that tsr__tokens_states returns. */
tsr_status tsr__tokens_take_slots(tsr__tokens *tokens, const tsr_tensor *read_slots,
                                  const tsr_tensor *write_slots, const tsr_tensor *state,
                                  const tsr_tensor *new_state, int64_t rows) TSR_NODISCARD;
/* Returns the first dimension that the state, or the new state, must have. */
int64_t tsr__tokens_states(const tsr__tokens *tokens, bool new_state);
/* Returns TSR_SLOTS_READ, … of shaders/params/slots.h. */
uint32_t tsr__tokens_slots(const tsr__tokens *tokens);
/* Checks that no slots are given, for a gradient. */
tsr_status tsr__tokens_refuse_slots(const char *op, const tsr_tensor *read_slots,
                                    const tsr_tensor *write_slots) TSR_NODISCARD;

/* Adds a tensor to the accesses of a dispatch, unless it is NULL. */
void tsr__tokens_read(tsr__dispatch *dispatch, const tsr_tensor *tensor);
void tsr__tokens_write(tsr__dispatch *dispatch, const tsr_tensor *tensor);
/* Returns a tensor's address, or 0 for NULL. */
uint64_t tsr__tokens_address(const tsr_tensor *tensor);

#endif
