/* Context parallelism: the ranks of a group divide the tokens of each sequence. context_divide.c
 * says which rank has which tokens, context.c keeps a division with what passes need of it,
 * context_attention.c computes attention, and context_cache.c attention with a divided cache. */
#ifndef TSR_PARALLEL_LAYERS_CONTEXT_H
#define TSR_PARALLEL_LAYERS_CONTEXT_H

#include "parallel/internal.h"
#include "tessera/transformer.h"

/* A division of sequences. It belongs to all who keep it: the last one that forgets it destroys
 * it. */
struct tsr__context {
    int users;
    tsr_group *group;
    int64_t rows, tokens; /* of all ranks */
    int64_t *sizes;       /* [ranks]: the tokens of each rank */
    tsr_shard_range chunks[2];
    /* i32 [tokens]: the index of each token in a gathered tensor, which has the tokens of rank 0,
     * then those of rank 1, …; and which token has each index of such a tensor */
    tsr_tensor *gathered, *places;
    tsr_tensor *positions; /* i32 [tokens of this rank]: their places in the sequence */
};

/* context_divide.c */

/* Gets the tokens of a rank, of which each rank has sizes[r]: ⌈sizes[r] / 2⌉ from the front, in the
 * order of ranks, and the others from the back, in the opposite order. */
void tsr__context_chunks(int ranks, const int64_t *sizes, int rank, tsr_shard_range out[2]);

/* context.c: refuses a context group, which may be NULL, whose stream is not that of the layer. */
tsr_status tsr__context_check(const tsr_layer *layer, const tsr_group *group) TSR_NODISCARD;
/* Finds out how the ranks of a context group divide the rows of x, [.., tokens, features], of a
 * layer's pass: as the documents say, or as the ranks agree, which *kept keeps; NULL: they do not
 * divide them. */
tsr_status tsr__context_find(tsr_group *group, const tsr__documents *documents, const tsr_layout *x,
                             tsr__context **kept, tsr__context **out) TSR_NODISCARD;
/* Returns the tokens of one of a rank's two chunks. */
static inline int64_t tsr__context_chunk(const tsr__context *context, int rank, int chunk)
{
    return chunk == 0 ? context->sizes[rank] - context->sizes[rank] / 2 : context->sizes[rank] / 2;
}

struct tsr__temps;
/* Returns the rank that has chunk number `chunk` of the sequence, which begins with the ranks'
 * chunks from the front. */
int tsr__context_owner(const tsr__context *context, int chunk);
/* Makes a view of one of this rank's chunks in a tensor [batch, tokens, …]. */
tsr_status tsr__context_chunk_of(const tsr__context *context, struct tsr__temps *temps,
                                 const tsr_tensor *all, int chunk, tsr_tensor **out) TSR_NODISCARD;
/* The same as a contiguous tensor of its own, which has the values if `copies` is true. */
tsr_status tsr__context_new_chunk(const tsr__context *context, struct tsr__temps *temps,
                                  const tsr_tensor *all, int chunk, bool copies,
                                  tsr_tensor **out) TSR_NODISCARD;

struct tsr__attention;
struct tsr__cached;
struct tsr__qkv_heads;

/* context_cache.c: computes the attention of a step of a cache that the layer's context group
 * divides: heads [.., tokens, heads · value_dim], a contiguous f32 tensor, from the features qkv,
 * whose heads are `in`. Queries and keys are rotated in place. The layer has no window, no
 * temperature, and values of its own. Collective over the context group. */
tsr_status tsr__context_attend_cached(const struct tsr__attention *attention,
                                      struct tsr__temps *temps, const struct tsr__cached *cached,
                                      const tsr_attention_params *params, const tsr_tensor *qkv,
                                      const struct tsr__qkv_heads *in,
                                      const tsr_tensor *heads) TSR_NODISCARD;

/* context_attention.c */

/* As tsr_attention for this rank's queries, with the keys and values of all ranks up to each query.
 * `y` is a view by heads. `lse` may be NULL. */
tsr_status tsr__context_attend(const struct tsr__attention *attention,
                               const struct tsr__context *context,
                               const tsr_attention_params *params, const struct tsr__qkv_heads *in,
                               tsr_tensor *y, tsr_tensor *lse) TSR_NODISCARD;
/* As tsr_attention_grad. The gradients of keys and values are summed over the ranks, each of which
 * gets those of its own tokens. */
tsr_status tsr__context_attend_grad(const struct tsr__attention *attention,
                                    const struct tsr__context *context,
                                    const tsr_attention_params *params,
                                    const struct tsr__qkv_heads *in, const struct tsr__qkv_heads *d,
                                    const tsr_tensor *dy, const tsr_tensor *y,
                                    const tsr_tensor *lse) TSR_NODISCARD;

#endif
