/* The layers of a model or of a stage of it: embedding, blocks, last norm and head. Training and
 * inference use the same layers: tsr_model (model.h) keeps its weights in them, and a training
 * program keeps theirs in sharded parameters (fsdp.h).
 *
 *     tsr_stack *stack = NULL;
 *     tsr_stack_create(tsr_stack_params(.config = &config, .group = tensor, .seed = 1), &stack);
 *     tsr_stack_shard(stack, tsr_fsdp_params(.group = data, .reduction = TSR_OP_SUM));
 *     tsr_stack_add_to(stack, optimizer);
 *     …
 *     tsr_stack_forward(stack, tokens, NULL, &saved, &hidden);
 *     tsr_stack_head_loss(stack, hidden, tsr_head_loss_params(.labels = labels, .loss = loss,
 *                                                             .scale = scale), &dhidden);
 *     tsr_stack_backward(stack, saved, dhidden, NULL);
 *     tsr_optimizer_step(optimizer, rate);
 *
 * In a pipeline each stage has a stack of its own, with some of the layers. The first stage has the
 * embedding, and the last one the norm and the head. If the head is the embedding, both have it.
 *
 * All ranks of the group must make the same calls in the same order. Errors of all calls: those of
 * layers (layer.h) and, once the stack is sharded, of fsdp.h.
 *
 * Threads: as for the group. */
#ifndef TESSERA_STACK_H
#define TESSERA_STACK_H

#include "tessera/fsdp.h"
#include "tessera/model.h"
#include "tessera/optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_stack_params {
    size_t struct_size;
    const tsr_model_config *config; /* copied */
    tsr_group *group;               /* divides each layer; NULL: tsr_group_default() */
    /* The layers of this stage: `layers` of them from first_layer on; 0: all that follow. */
    int first_layer, layers;
    /* How the ranks divide heads, hidden features and the vocabulary; NULL: parts differ by at most
     * one. `align` and `limits` are ignored. */
    const tsr_partition_params *partition;
    tsr_dtype dtype; /* of parameters and features: f32, f16 or bf16; 0: f32 */
    /* Initial weights are normally distributed with this standard deviation (0: 0.02). That of the
     * two outputs of a block is divided by √(2 · layers), as in GPT-2. Biases are 0. The weights
     * depend on the seed and the configuration, not on the number of ranks or stages. */
    int64_t seed;
    double deviation;
    bool recompute;         /* blocks keep only their inputs for the backward pass */
    bool experts_over_data; /* as in tsr_moe_params */
    /* The ranks of this group divide the tokens of each row (transformer.h, context parallelism);
     * NULL: they do not. Such ranks are also ranks of the group of tsr_stack_shard, which sums
     * their gradients. Refused by name: latent attention, short convolutions, and packed rows with
     * delta nets. */
    tsr_group *context_group;
    /* The layers of the model that are trained, such as "0-3,7". The others, the embedding, the
     * last norm and the head are frozen: their values are sharded, too, but have no gradients and
     * no optimizer state. NULL: everything is trained. */
    const char *trained;
} tsr_stack_params;
#define tsr_stack_params(...)                                                                      \
    (&(tsr_stack_params){.struct_size = sizeof(tsr_stack_params), __VA_ARGS__})

typedef struct tsr_stack tsr_stack;

/* Creates the layers, without memory for their parameters. Needs no communication. Errors:
 * TSR_ERR_INVALID for the configuration or the range of layers, naming the values; those of
 * creating layers. */
TSR_API TSR_NODISCARD tsr_status tsr_stack_create(const tsr_stack_params *params, tsr_stack **out);
/* Destroys a stack and its sharded parameters. Destroy optimizers that have them first. Sets
 * *stack to NULL. NULL is allowed. */
TSR_API void tsr_stack_destroy(tsr_stack **stack);

typedef struct tsr_stack_info {
    size_t struct_size;
    int blocks; /* the number of blocks of this stage */
    /* the part of the vocabulary for which this rank computes logits */
    int64_t first_logit, logits;
    /* The names of the parameters that an earlier stage has, too, ended by NULL, for
     * `counted_elsewhere` of tsr_optimizer_clip_params; NULL: there are none. They belong to the
     * stack, and are known once it is sharded. */
    const char *const *counted_elsewhere;
} tsr_stack_info;
/* Describes a stack. Errors: TSR_ERR_INVALID for a NULL. */
TSR_API TSR_NODISCARD tsr_status tsr_stack_get_info(const tsr_stack *stack, tsr_stack_info *out);
/* Returns a block, counted from this stage's first, or NULL. It belongs to the stack. */
TSR_API tsr_layer *tsr_stack_block(const tsr_stack *stack, int index);

/* Parameters --------------------------------------------------------------------------------- */

/* Gives the parameters memory: draws initial values, and divides them among the ranks of a
 * data-parallel group. `params` are those of tsr_fsdp_create; units and unit_count are the stack's
 * own and must be 0. If all layers are frozen (tsr_layer_set_frozen, tsr_lora_create), the stack
 * may also be that of a model, in any dtype, and its values are divided: they are gathered for
 * passes, and have no gradients and no optimizer state. Collective over that group. */
TSR_API TSR_NODISCARD tsr_status tsr_stack_shard(tsr_stack *stack, const tsr_fsdp_params *params);
/* Divides the parameters again after the group has changed, as tsr_fsdp_rebuild. In a process that
 * has joined, the stack has no parameters yet. After an error it may be called again, with the
 * group that is left then. */
TSR_API TSR_NODISCARD tsr_status tsr_stack_reshard(tsr_stack *stack, const tsr_fsdp_params *params);
/* Adds all sharded parameters to an optimizer, except those that are frozen. */
TSR_API TSR_NODISCARD tsr_status tsr_stack_add_to(tsr_stack *stack, tsr_optimizer *optimizer);

/* Adds the gradients of a head that is the embedding, of which the first and the last stage each
 * have one. Call it between the last backward pass and the step. Does nothing in other cases. */
TSR_API TSR_NODISCARD tsr_status tsr_stack_reduce_tied(tsr_stack *stack, tsr_pipeline *pipeline);

/* Replaces all parameters of a sharded stack by the weights in a model's files. Each rank reads
 * only what it keeps. Biases for the choice of experts are 0 if the files have none. All ranks call
 * it. Errors: TSR_ERR_INVALID if the stack is not sharded, or if
 * the configuration of the files is not that of the stack, naming both values
 * (tsr_model_file_open_weights takes another configuration); TSR_ERR_NOT_FOUND, TSR_ERR_INVALID and
 * TSR_ERR_UNSUPPORTED for a tensor, naming it; TSR_ERR_IO; TSR_ERR_NO_MEMORY; those of the
 * stream. */
TSR_API TSR_NODISCARD tsr_status tsr_stack_load(tsr_stack *stack, const tsr_model_file *file);
/* Writes the parameters of a sharded stack to a safetensors file with the names and the arrangement
 * of Hugging Face, and config.json into the same folder. `stages` has a rank of each stage, as for
 * tsr_pipeline_create; NULL: one stage. All ranks of all stages call it; the first rank of each
 * stage needs device memory for all parameters of its stage, and writes them. Biases that the model
 * lacks, but other programs expect, are written as 0. Errors: those of tsr_checkpoint_save. */
TSR_API TSR_NODISCARD tsr_status tsr_stack_save(tsr_stack *stack, const char *path,
                                                tsr_comm *stages);

/* Passes -----------------------------------------------------------------------------------------
 *
 * A pass that fails writes no output and may be repeated. If a backward pass fails, the gradients
 * of some layers have been added already: call tsr_optimizer_zero_grad before the next one. */

/* What a backward pass needs of a forward pass. */
typedef struct tsr_stack_saved tsr_stack_saved;
/* Sets *saved to NULL. NULL is allowed. */
TSR_API void tsr_stack_saved_destroy(tsr_stack_saved **saved);

/* Computes the layers of this stage. x are tokens' ids, i32 [rows, tokens], in the first stage, and
 * the features [rows, tokens, width] of the previous stage in the others. *y are the features after
 * this stage; in the last stage, those after the last norm, which are the hidden states. The caller
 * must destroy them. `saved` may be NULL if there will be no backward pass.
 *
 * Rows may be packed: several documents, one after the other. `starts`, [rows · tokens] in host
 * memory, has for each token the index in its row of the first token of its document; it is read
 * during the call, and must be the same on all ranks and stages. Attention then stays inside each
 * document, and positions count from its first token. NULL: each row is one document. Errors:
 * TSR_ERR_INVALID if a start is before that of the previous token or after its own token, naming
 * the token.
 *
 * If a context group divides the rows, x, `starts` and y have this rank's tokens of each row
 * (tsr_context_divide), and starts are places in the whole row. */
TSR_API TSR_NODISCARD tsr_status tsr_stack_forward(tsr_stack *stack, const tsr_tensor *x,
                                                   const int32_t *starts, tsr_stack_saved **saved,
                                                   tsr_tensor **y);
/* The same for tokens that follow those in a cache, for which a step has begun (kv_cache.h). The
 * cache has as many layers as this stage. */
TSR_API TSR_NODISCARD tsr_status tsr_stack_forward_cached(tsr_stack *stack, const tsr_tensor *x,
                                                          tsr_kv_cache *cache, tsr_tensor **y);
/* Computes the gradients of the parameters, and dx, that of the features x, from dy, that of *y.
 * The first stage has no dx: `dx` may be NULL there. A stack that is not sharded has no memory for
 * gradients: its layers must be frozen (tsr_layer_set_frozen), and then only its adapters (lora.h)
 * get gradients. */
TSR_API TSR_NODISCARD tsr_status tsr_stack_backward(tsr_stack *stack, const tsr_stack_saved *saved,
                                                    const tsr_tensor *dy, tsr_tensor **dx);

/* Computes the logits of hidden states: this rank's part of the vocabulary, [rows, tokens, count].
 * For the last stage only. `saved` may be NULL. */
TSR_API TSR_NODISCARD tsr_status tsr_stack_head_forward(tsr_stack *stack, const tsr_tensor *hidden,
                                                        tsr_layer_saved **saved,
                                                        tsr_tensor **logits);
TSR_API TSR_NODISCARD tsr_status tsr_stack_head_backward(tsr_stack *stack,
                                                         const tsr_layer_saved *saved,
                                                         const tsr_tensor *dlogits,
                                                         tsr_tensor **dhidden);
typedef struct tsr_head_loss_params {
    size_t struct_size;
    /* i32, i64, u32 or u8 [rows, tokens]: what each token predicts. A label outside the vocabulary,
     * such as −100, gives no loss. */
    const tsr_tensor *labels;
    const tsr_tensor *weights; /* f32 [rows, tokens]: factors of the losses; NULL: 1 */
    /* A factor of `loss` and of all gradients, such as 1 / the number of labels in all rows of the
     * step; 0: 1. */
    float scale;
    int64_t chunk_tokens; /* tokens whose logits exist at the same time; 0: chosen */
    /* f32 [rows, tokens]: the loss of each token, −log of the probability of its label, times its
     * weight; 0 without a label. NULL: not wanted. */
    tsr_tensor *losses;
    tsr_tensor *loss; /* f32 [1]: scale · the sum of the losses is added to it. NULL: not wanted */
} tsr_head_loss_params;
#define tsr_head_loss_params(...)                                                                  \
    (&(tsr_head_loss_params){.struct_size = sizeof(tsr_head_loss_params), __VA_ARGS__})

/* Computes the head and the cross-entropy of its logits, by chunks of tokens, and, if `dhidden` is
 * not NULL, the gradients as tsr_stack_head_backward. Needs memory for the logits of one chunk
 * only. The results are those of tsr_stack_head_forward, tsr_vocabulary_cross_entropy and
 * tsr_stack_head_backward, except for the order in which gradients of the head's weights and `loss`
 * are added up. Collective. For the last stage only. Errors: TSR_ERR_INVALID for shapes and dtypes,
 * naming them. If the call fails, `loss` and `losses` may have been changed. */
TSR_API TSR_NODISCARD tsr_status tsr_stack_head_loss(tsr_stack *stack, const tsr_tensor *hidden,
                                                     const tsr_head_loss_params *params,
                                                     tsr_tensor **dhidden);
/* Gathers logits [rows, tokens, count] from all ranks, and downloads them to
 * out[rows · tokens · vocabulary]. Collective. Blocks until they have arrived. */
TSR_API TSR_NODISCARD tsr_status tsr_stack_gather_logits(tsr_stack *stack, const tsr_tensor *logits,
                                                         float *out);

/* Experts -------------------------------------------------------------------------------------- */

/* What a forward pass chose in a block of this stage, as tsr_moe_get_choice. */
TSR_API TSR_NODISCARD tsr_status tsr_stack_get_choice(const tsr_stack_saved *saved, int block,
                                                      tsr_moe_choice *out);
/* Adds changes[block][expert] to the biases for the choice of experts (tsr_moe_params.choice_bias)
 * of a sharded stack, between two steps. `changes` has a pointer for each block of this stage, NULL
 * for a block without such a bias. All ranks that share the parameters must give the same values.
 * Errors: TSR_ERR_INVALID if a block with changes has no such bias; those of tsr_fsdp_changed. */
TSR_API TSR_NODISCARD tsr_status tsr_stack_add_choice_biases(tsr_stack *stack,
                                                             const float *const *changes);

/* Sets the dropout of all blocks, as tsr_block_set_dropout. */
TSR_API TSR_NODISCARD tsr_status tsr_stack_set_dropout(tsr_stack *stack, float p,
                                                       const tsr_random_params *random);

#ifdef __cplusplus
}
#endif

#endif
