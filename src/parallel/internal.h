/* What models (src/model) use of this module besides the public headers. */
#ifndef TSR_PARALLEL_INTERNAL_H
#define TSR_PARALLEL_INTERNAL_H

#include "base/error.h"
#include "tessera/fsdp.h"
#include "tessera/layer.h"
#include "tessera/matmul.h"

/* fsdp/pass.c: Ends the use of a unit whose pass has failed, and discards the gradients of that
 * pass. */
void tsr__fsdp_abandon(tsr_fsdp *model, int unit);

/* layers/layer.c: Records writing the initial values of elements first, first + 1, … of this rank's
 * shard of parameter `index`, in row-major order, to `out`, a contiguous tensor of one dimension.
 * They are the values that the layer is created with. */
tsr_status tsr__layer_initial(const tsr_layer *layer, int index, tsr_stream *stream, int64_t first,
                              tsr_tensor *out) TSR_NODISCARD;

/* layers/embedding_layer.c: The forward pass of an embedding layer, without a backward pass. With
 * one rank y has this dtype. With several ranks, which exchange y, y has that of the table. */
tsr_status tsr__embedding_forward_as(tsr_layer *layer, const tsr_tensor *x, tsr_dtype dtype,
                                     tsr_tensor **y) TSR_NODISCARD;

/* layers/column_linear.c: The forward pass of a column-parallel layer whose product normalises x
 * first, as the layer `norm` would. No backward pass can follow. If no kernel computes that in one
 * dispatch for each product, *y is NULL, and nothing is recorded. */
tsr_status tsr__column_forward_normed(tsr_layer *layer, const tsr_layer *norm, const tsr_tensor *x,
                                      bool gated, tsr_activation activation,
                                      tsr_tensor **y) TSR_NODISCARD;

/* The documents of packed rows, for the attention of a pass. */
typedef struct tsr__documents {
    tsr_tensor *starts;    /* i32 [rows, tokens]: the first token of each token's document */
    tsr_tensor *positions; /* i32 [rows, 1, tokens]: of each token in its document */
} tsr__documents;

/* layers/self_attention.c: Sets the documents of the rows of the next forward passes of a block or
 * an attention layer, which keep what their backward passes need. NULL: each row is one document.
 * The struct must exist until another one is set. */
void tsr__layer_set_documents(tsr_layer *layer, const tsr__documents *documents);

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

#endif
