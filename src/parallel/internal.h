/* What models (src/model) use of this module besides the public headers. */
#ifndef TSR_PARALLEL_INTERNAL_H
#define TSR_PARALLEL_INTERNAL_H

#include "base/error.h"
#include "parallel/group/deferred.h"
#include "tessera/fsdp.h"
#include "tessera/layer.h"
#include "tessera/matmul.h"

/* fsdp/pass.c: Ends the use of a unit whose pass has failed, and discards the gradients of that
 * pass. */
void tsr__fsdp_abandon(tsr_fsdp *model, int unit);

/* fsdp/create.c: As tsr_fsdp_create, for layers whose parameters have memory only while they are
 * read, so that there is never more than one unit beside the shards. */
typedef struct tsr__fsdp_source {
    /* Gives the parameters of a unit's layer memory in which, if `with_values` is set, their values
     * are. If it succeeds, `close` follows. */
    tsr_status (*open)(void *user, tsr_layer *layer, bool with_values);
    void (*close)(void *user, tsr_layer *layer);
    void *user;
} tsr__fsdp_source;
tsr_status tsr__fsdp_create_from(const tsr_fsdp_params *params, const tsr__fsdp_source *source,
                                 tsr_fsdp **out) TSR_NODISCARD;

/* layers/layer.c: Records writing the initial values of elements first, first + 1, … of this rank's
 * shard of parameter `index`, in row-major order, to `out`, a contiguous tensor of one dimension.
 * They are the values that the layer is created with. */
tsr_status tsr__layer_initial(const tsr_layer *layer, int index, tsr_stream *stream, int64_t first,
                              tsr_tensor *out) TSR_NODISCARD;

/* layers/embedding_layer.c: The forward pass of an embedding layer, without a backward pass. With
 * one rank y has this dtype. With several ranks, which exchange y, y has that of the table. */
tsr_status tsr__embedding_forward_as(tsr_layer *layer, const tsr_tensor *x, tsr_dtype dtype,
                                     tsr_tensor **y) TSR_NODISCARD;

/* The same as tsr_layer_forward, for a column-parallel layer, but y has the distance tsr__row_pitch
 * from row to row. */
tsr_status tsr__column_forward_pitched(tsr_layer *layer, const tsr_tensor *x,
                                       tsr_layer_saved **saved, tsr_tensor **y) TSR_NODISCARD;

/* layers/column_linear.c: The forward pass of a column-parallel layer whose product normalises x
 * first, as the layer `norm` would. No backward pass can follow. If no kernel computes that in one
 * dispatch for each product, *y is NULL, and nothing is recorded. */
tsr_status tsr__column_forward_normed(tsr_layer *layer, const tsr_layer *norm, const tsr_tensor *x,
                                      bool gated, tsr_activation activation,
                                      tsr_tensor **y) TSR_NODISCARD;

/* layers/context.c: how the ranks of a context group divide the sequences of a pass. */
typedef struct tsr__context tsr__context;
/* Tells the other ranks how many rows and tokens of each row this rank has. *context, which may be
 * NULL, stays as it is if that is still right; otherwise the caller forgets it and keeps another
 * one. Collective. */
tsr_status tsr__context_agree(tsr_group *group, int64_t rows, int64_t tokens,
                              tsr__context **context) TSR_NODISCARD;
/* Returns `own`, or, if that is TSR_OK on this rank but not on another one, an error that says
 * `what`, such as "stack: starts are wrong", and names that rank. Collective. */
tsr_status tsr__context_all_pass(tsr_group *group, const char *what, tsr_status own) TSR_NODISCARD;
tsr__context *tsr__context_keep(tsr__context *context);
void tsr__context_forget(tsr__context **context);
/* Returns the number of tokens of a row on all ranks. */
int64_t tsr__context_tokens(const tsr__context *context);
/* Returns the place in the sequence of one of this rank's tokens. */
int64_t tsr__context_place(const tsr__context *context, int64_t token);
/* Returns how many tokens of this rank are in the first of its two chunks. */
int64_t tsr__context_front(const tsr__context *context);

/* The documents of packed rows, for the attention and the delta nets of a pass. */
typedef struct tsr__documents {
    /* i32 [rows, tokens]: the first token of each token's document; NULL: rows are documents */
    tsr_tensor *starts;
    tsr_tensor *positions; /* i32 [rows, 1, tokens]: of each token in its document */
    tsr__context *context; /* NULL: rows are not divided */
    /* As starts, but counted from the first token of this rank's chunk that has the token; below 0:
     * the document began before the chunk. Set if rows are divided and have starts */
    tsr_tensor *chunk_starts;
} tsr__documents;

/* layers/transformer_block.c: Sets the documents of the rows of the next forward passes of a block,
 * an attention layer or a delta net, which keep what their backward passes need. NULL: each row is
 * one document. The struct must exist until another one is set. */
void tsr__layer_set_documents(tsr_layer *layer, const tsr__documents *documents);

/* layers/transformer_block.c: Sets a block's own input (layer_input of tsr_block_params) of the
 * next passes, [.., layer_input], and where backward passes write its gradient, or NULL. Backward
 * passes need the input of their forward pass. The tensors must exist until others, or NULL, are
 * set. */
void tsr__block_set_input(tsr_layer *layer, const tsr_tensor *input, tsr_tensor *gradient);

/* The keys and values that several attention layers of a pass without a cache use: the layer that
 * computes them keeps copies here, which layers with shared_keys read. In the backward pass, these
 * layers, which come first, sum their gradients here; the layer that computes the keys adds the
 * sums to its own gradients, and destroys them. Initialise the struct as {0} for each forward pass.
 */
typedef struct tsr__shared_keys {
    tsr_tensor *k, *v;   /* [batch, kv heads, tokens, dim] of this rank's heads; k is rotated */
    tsr_tensor *dk, *dv; /* f32 of the same shapes; NULL: there are none */
} tsr__shared_keys;
void tsr__shared_keys_finish(tsr__shared_keys *keys);
/* layers/self_attention.c: sets them for the next passes of an attention layer, or of the one in a
 * block. The struct must exist until another one, or NULL, is set. */
void tsr__layer_set_shared_keys(tsr_layer *layer, tsr__shared_keys *keys);

/* layers/linear_create.c: creates a linear layer of which each rank has all, and computes all of y.
 */
tsr_status tsr__whole_linear_create(const tsr_linear_params *params, tsr_layer **out) TSR_NODISCARD;

/* layers/teams.c: divides whole experts over teams in proportion to the sums of their ranks' rates,
 * and the hidden features of an expert over the ranks of each team, in multiples of params->align.
 * Rank r is in teams[r]. The ranges are those of each rank, [ranks]. */
tsr_status tsr__teams_divide(int ranks, const int *teams, const tsr_partition_params *params,
                             int64_t experts, int64_t hidden, tsr_shard_range *experts_out,
                             tsr_shard_range *hidden_out) TSR_NODISCARD;
/* Returns the number of ranks of the largest team. `teams` may be NULL: there is one. */
int tsr__teams_largest(int ranks, const int *teams);

/* layers/layer.c: returns whether a parameter of experts has a part of them only, because its rank
 * is in a team, and sets *first and *count to them. */
bool tsr__parameter_in_team(const tsr_parameter *parameter, int64_t *first, int64_t *count);

/* layers/vocabulary_cross_entropy.c: tsr_vocabulary_cross_entropy for logits whose columns are the
 * classes from `first` on. */
tsr_status tsr__vocabulary_cross_entropy(tsr_group *group, tsr_tensor *loss, tsr_tensor *dlogits,
                                         const tsr_tensor *logits, const tsr_tensor *labels,
                                         int64_t classes, int64_t first,
                                         float grad_scale) TSR_NODISCARD;

/* layers/layer.c: Keeps a tensor together with what a forward pass has saved, and destroys it with
 * that. */
void tsr__layer_saved_keep(tsr_layer_saved *saved, tsr_tensor *tensor);
/* Returns the tensor that is kept, or NULL. */
const tsr_tensor *tsr__layer_saved_kept(const tsr_layer_saved *saved);

/* layers/layer.c: returns whether a layer is frozen (tsr_layer_set_frozen). */
bool tsr__layer_is_frozen(const tsr_layer *layer);

/* layers/adapter_create.c: sets of adapters (lora.h of the public headers). A set is a layer
 * without passes, whose parameters are the matrices A and B of all linear layers to which it is
 * attached.
 */

/* An adapter for one weight: scale · (x Aᵀ) Bᵀ, A [rank, in], B [out, rank]; for a weight of
 * experts, A [experts, rank, in] and B [experts, out, rank]. */
typedef struct tsr__adapter_part {
    const char *weight; /* the end of the weight's name in its layer, such as "q.weight" */
    /* The names of the parameters. Weights of one layer may have the same A. */
    const char *name_a, *name_b;
    const char *name_m; /* of the magnitudes [out] (DoRA); NULL: none */
    int64_t rank;
    float scale;
} tsr__adapter_part;
/* Creates a set that is attached to nothing. */
tsr_status tsr__adapters_create(tsr_group *group, const char *name, bool trainable,
                                tsr_layer **out) TSR_NODISCARD;
/* Attaches adapters to linear layers and mixtures of experts inside `layer`, and allocates and
 * draws their matrices: A is uniform in ±1/√in, B is 0, and magnitudes are the norms of the rows of
 * the weights, for which the ranks communicate; without a seed they have no values yet.
 * Weights of one layer follow each other in `parts`. Destroying the set detaches all. */
tsr_status tsr__adapters_attach(tsr_layer *set, tsr_layer *layer, int count,
                                const tsr__adapter_part *parts, const uint64_t *seed) TSR_NODISCARD;
/* What the next passes apply: a set that is enabled; a set that is the chosen one (is_it), or not
 * at all; or to each row the set with a number in ids [rows, 1], i32, which are from 0 to count −
 * 1, or −1 for none. `version` is another number if the sets of the layers, their numbers or their
 * values have changed. The tensor belongs to the caller. Passes by row have no backward pass. */
void tsr__adapters_choose_enabled(tsr_layer *set);
void tsr__adapters_choose_one(tsr_layer *set, bool is_it);
void tsr__adapters_choose_by_row(tsr_layer *set, int number, int count, uint64_t version,
                                 const tsr_tensor *ids);
/* Says that weights or matrices of layers have changed, so that the norms that adapters with
 * magnitudes need are computed again. */
void tsr__adapters_changed(tsr_layer *set);
/* Sets the dropout of x before A in the next passes; p 0: none. Passes with the same numbers have
 * the same masks. */
void tsr__adapters_set_dropout(tsr_layer *set, float p, uint64_t seed, uint64_t subsequence);
/* Adds the adapters' products to the weights. Fails before it changes anything if a weight has no
 * memory or is in a block format. */
tsr_status tsr__adapters_merge(tsr_layer *set) TSR_NODISCARD;
/* Passes ignore adapters that are not enabled. */
void tsr__adapters_enable(tsr_layer *set, bool enabled);
/* Call one before backward passes, and the other after them: it sums this rank's contributions to
 * gradients of parameters that all ranks have, by one all-reduce, and adds the sums to the
 * gradients.
 */
tsr_status tsr__adapters_begin_backward(tsr_layer *set) TSR_NODISCARD;
tsr_status tsr__adapters_sum(tsr_layer *set) TSR_NODISCARD;

#endif
