/* The internal interface of stacks: the layers of a stage, and where their parameters are.
 *
 * A stack's parameters are in one of two places. In a model for inference the layers have memory
 * of their own, which tsr_model has allocated; a head that is the embedding uses the embedding's,
 * and learned positions are in `positions`. In a training they are in units of sharded models:
 * `tied` has the embedding that is also the head, and `sharded` everything else; if only some
 * layers are trained, `frozen` has the others. A layer then has memory only while its unit is in
 * use.
 *
 *     create.c         creates a stack, and lists its parameters
 *     block.c          creates its blocks
 *     passes.c         passes of the layers and of the head
 *     head_loss.c      the head and the loss by chunks of tokens
 *     inputs.c         what blocks get in passes beside the features
 *     next.c           the first layer that predicts further tokens
 *     documents.c      documents of packed rows, and of rows that a context group divides
 *     adapters.c       adapters in passes
 *     choice_biases.c  biases for the choice of experts
 *     chosen.c         lists of layers
 *     shard.c          parameters as sharded parameters
 *     load.c, save.c   reading and writing these */
#ifndef TSR_MODEL_STACK_STACK_H
#define TSR_MODEL_STACK_STACK_H

#include "model/config/config.h"
#include "parallel/internal.h"
#include "tessera/stack.h"

/* The numbers of units in the `places` of the stack; −1: this stage does not have it, or
 * it is in `tied`. */
typedef struct tsr__stack_units {
    int embedding, positions, inputs, first_block, norm, head; /* inputs: the first of three */
} tsr__stack_units;

/* Where a unit is. */
typedef struct tsr__stack_place {
    bool is_frozen; /* in `frozen`, otherwise in `sharded` */
    int unit;       /* its number there */
} tsr__stack_place;

/* The adapters that one tsr_lora has attached to a stack's layers. */
typedef struct tsr__stack_adapter {
    tsr_layer *layer;  /* their parameters: a set of tsr__adapters_create */
    tsr_fsdp *sharded; /* where the parameters are, as its only unit; NULL: in the layer */
    bool is_enabled;
    bool has_head, has_experts; /* the head, or experts, have an adapter */
    bool has_latent;            /* weights of latent attention other than o have an adapter */
    bool has_magnitudes;
    /* dropout of x before A in passes that are followed by a backward pass */
    float dropout;
    uint64_t dropout_seed;
    uint64_t identity; /* differs from that of all adapters that the stack has had */
    struct tsr__stack_adapter *next;
} tsr__stack_adapter;

/* The first of the layers that predict further tokens, with what is around its block. */
typedef struct tsr__stack_next {
    tsr_layer *embedding_norm, *hidden_norm, *join, *block, *norm;
} tsr__stack_next;

struct tsr_stack {
    tsr__config *own_config;
    const tsr_model_config *config; /* in own_config */
    const tsr__family *family;
    tsr_group *group;
    tsr_stream *stream;
    tsr_device *device;
    tsr_dtype dtype;    /* of parameters */
    tsr_dtype features; /* of the features between layers */
    int64_t seed;       /* of initial weights */
    float deviation;
    bool tiled_delta_nets; /* see tsr__kept.tiles */
    int first_layer, layer_count;
    bool is_first, is_last;
    int64_t *vocabulary; /* [ranks]: how the vocabulary is divided */
    /* A layer that only another stage has is NULL. */
    tsr_layer *embedding, *norm, *head;
    /* If layers have inputs of their own (layer_input): a table of all layers' inputs, a projection
     * of the embedding to them, and a norm of each layer's. Otherwise NULL. */
    tsr_layer *input_table, *input_projection, *input_norm;
    tsr_tensor *input, *input_grad; /* of the block whose pass is running; or NULL */
    tsr_layer **blocks;             /* [layer_count] */
    /* [layer_count]: the block whose keys and values a block uses if several use them, otherwise
     * −1; NULL: no block uses those of another */
    int *keys_of;
    tsr__stack_next next;     /* layers are NULL if the stack was created without it */
    tsr_tensor *positions;    /* learned positions [context, width] of an unsharded stack */
    tsr_fsdp *tied, *sharded; /* `sharded` is not NULL once the stack is sharded */
    tsr_fsdp *frozen;         /* NULL: all units are in `sharded` */
    tsr__stack_place *places; /* [units]; NULL: the stack is not sharded */
    tsr_group *data;          /* the group of the sharded parameters */
    tsr_group *context_group; /* NULL: rows are not divided */
    tsr__context *context;    /* how its ranks divide the rows of the last pass; or NULL */
    bool is_fixed;      /* all sharded parameters are frozen: no gradients, no optimizer state */
    bool tied_is_fixed; /* those of `tied` are */
    tsr__stack_units units;
    const char *elsewhere[2];     /* see tsr_stack_info */
    tsr__stack_adapter *adapters; /* they belong to their tsr_lora */
    uint64_t adapter_version;     /* a number that changes with each adapter that comes or goes */
    bool adapters_chosen;         /* a pass has adapters of sequences */
    tsr_tensor *adapter_rows;     /* i32: the adapters of rows, in a pass by rows */
    uint64_t trained_passes;      /* forward passes followed by backward passes, for dropout */
};

/* create.c */

/* How a kind of layer is divided: `align` of the partitions of heads, of hidden features or whole
 * experts, and of a shared expert. */
typedef struct tsr__kind_division {
    uint64_t heads, hidden, shared;
    uint64_t mlp; /* of the hidden features of an MLP beside experts */
    bool whole_experts;
    const int *teams;              /* [ranks], as in tsr_moe_params; or NULL */
    const uint64_t *expert_limits; /* [ranks]: the most whole experts of each; NULL: no limits */
} tsr__kind_division;

typedef struct tsr__stack_options {
    const tsr_model_config *config;
    tsr_group *group, *context_group;
    int first_layer, layer_count;
    tsr_partition_params partition;      /* of heads, hidden features and the vocabulary */
    const tsr__kind_division *divisions; /* [kinds of layers]; NULL: all 0 */
    tsr_dtype dtype, norm_dtype, features;
    int64_t seed;
    float deviation; /* 0: no initial weights are ever drawn */
    bool recompute, experts_over_data;
    bool tiled_delta_nets; /* see tsr__kept.tiles */
    bool next_token;       /* the last stage has the first layer that predicts further tokens */
    bool trains;           /* refuse layers that have no backward pass */
    int64_t context;       /* decides about tsr_model_layer.long_rope; 0: the configuration's */
} tsr__stack_options;
tsr_status tsr__stack_create(const tsr__stack_options *options, tsr_stack **out) TSR_NODISCARD;

#define TSR__STACK_NAME 64

/* Gives the name in weights.h of a parameter of block `layer` of the model, or, unless `ours` is
 * NULL, of the layer whose name in weights.h is `ours`. */
void tsr__stack_own_name(const tsr_stack *stack, int layer, const char *ours,
                         const tsr_parameter *parameter, char out[TSR__STACK_NAME]);

/* block.c */

/* Returns whether a layer uses long_rope for this context. */
bool tsr__layer_is_long(const tsr_model_layer *layer, int64_t context);
/* Creates block `number` of the model. */
tsr_status tsr__stack_create_block(tsr_stack *stack, const tsr__stack_options *options,
                                   uint64_t seed, int number, tsr_layer **out) TSR_NODISCARD;
/* Returns which block's keys a block uses: its own index unless it has shared_keys; -1: those of a
 * layer of another stage. */
int tsr__stack_keys_layer(const tsr_stack *stack, int index);
/* Returns the name of a layer outside blocks in Hugging Face's files, without the prefix. */
const char *tsr__stack_layer_name(const tsr_stack *stack, const char *ours);
/* Gives layers their initial weights as the options say, with this standard deviation. */
tsr_init_params tsr__stack_init(const tsr__stack_options *options, uint64_t seed, float deviation);

/* One of the stack's parameters. */
typedef struct tsr__stack_parameter {
    int layer;                      /* of the model; −1: outside layers */
    char ours[TSR__STACK_NAME];     /* its name in weights.h, such as "attention.q.weight" */
    const tsr_parameter *parameter; /* NULL: learned positions of an unsharded stack */
    tsr_layer *owner;               /* the layer that has it; NULL: learned positions */
    int index;                      /* of the parameter in its layer */
    tsr_fsdp *sharded;              /* NULL: the stack is not sharded */
    int unit;                       /* of the stack */
    uint64_t number;                /* of the parameter in the plan of `sharded` */
} tsr__stack_parameter;

/* Calls `visit` for each parameter of this stage, once for a tied head, in the order of the forward
 * pass. */
tsr_status tsr__stack_each(const tsr_stack *stack,
                           tsr_status (*visit)(void *user, const tsr__stack_parameter *parameter),
                           void *user) TSR_NODISCARD;

/* passes.c: for inference, tsr_stack_forward_cached without the last norm, and the last norm
 * followed by tsr_stack_head_forward. The head's product normalises few rows itself, and only the
 * rows whose logits are needed are normalised. */
tsr_status tsr__stack_blocks_cached(tsr_stack *stack, const tsr_tensor *x, tsr_kv_cache *cache,
                                    tsr_tensor **y) TSR_NODISCARD;
tsr_status tsr__stack_head_after_blocks(tsr_stack *stack, const tsr_tensor *features,
                                        tsr_tensor **logits) TSR_NODISCARD;

/* Applies the scale and the cap of the model's logits to the head's output. `saved`, if not NULL,
 * keeps what the gradient needs. */
tsr_status tsr__stack_finish_logits(tsr_stack *stack, tsr_layer_saved *saved,
                                    tsr_tensor *logits) TSR_NODISCARD;
/* The gradient of tsr__stack_finish_logits: *out is a new tensor. */
tsr_status tsr__stack_finish_logits_grad(tsr_stack *stack, const tsr_layer_saved *saved,
                                         const tsr_tensor *dlogits, tsr_tensor **out) TSR_NODISCARD;
/* Looks up the embeddings of tokens without a backward pass, with the features' dtype and scale. */
tsr_status tsr__stack_embed(tsr_stack *stack, const tsr_tensor *ids,
                            tsr_tensor **features) TSR_NODISCARD;

/* next.c: the first layer that predicts further tokens. Its input at a place of a text is what the
 * model has computed for the token there, after the model's last norm, and the embedding of the
 * token that follows; it predicts the one after that. Further tokens are predicted from its own
 * output, after its own norm, and the embedding of the token that it predicted. */
tsr_status tsr__stack_create_next(tsr_stack *stack,
                                  const tsr__stack_options *options) TSR_NODISCARD;
void tsr__stack_destroy_next(tsr_stack *stack);
/* Computes features [rows, tokens, width] from ids i32 [rows, tokens], the tokens that follow, and
 * `hidden` [rows, tokens, width]: `normed`, or before the model's last norm. A step of the cache,
 * which has one layer, must have begun. */
tsr_status tsr__stack_next_forward(tsr_stack *stack, const tsr_tensor *ids,
                                   const tsr_tensor *hidden, bool normed, tsr_kv_cache *cache,
                                   tsr_tensor **features) TSR_NODISCARD;
/* Computes this rank's logits of features, and *hidden, which is normed, for the next prediction.
 */
tsr_status tsr__stack_next_logits(tsr_stack *stack, const tsr_tensor *features, tsr_tensor **hidden,
                                  tsr_tensor **logits) TSR_NODISCARD;

/* inputs.c: the blocks' own inputs of a pass, and what its backward pass needs. All are NULL if
 * blocks have no such inputs. */
typedef struct tsr__stack_inputs {
    tsr_tensor *all;   /* [rows, tokens, layers, P] */
    tsr_tensor *grads; /* their gradients, which the blocks write; NULL: nobody needs them */
    tsr_layer_saved *table, *projection, *norm;
} tsr__stack_inputs;
/* Computes the inputs for tokens `ids`, whose scaled embeddings are x, if blocks have inputs. If
 * `saves` is set, a backward pass may follow. */
tsr_status tsr__stack_compute_inputs(tsr_stack *stack, const tsr_tensor *ids, const tsr_tensor *x,
                                     bool saves, tsr__stack_inputs *inputs) TSR_NODISCARD;
void tsr__stack_inputs_finish(tsr__stack_inputs *inputs);
/* Makes memory for the gradients, before the backward passes of the blocks, unless the layers that
 * compute the inputs are frozen. */
tsr_status tsr__stack_need_input_grads(tsr_stack *stack, tsr__stack_inputs *inputs) TSR_NODISCARD;
/* After those of all blocks: adds the gradients of these layers' parameters, and to d, the gradient
 * of the features before the first block, the gradient of x. */
tsr_status tsr__stack_inputs_backward(tsr_stack *stack, const tsr__stack_inputs *inputs,
                                      tsr_tensor *d) TSR_NODISCARD;
/* Creates the layers that compute these inputs, as the embedding is created. */
tsr_status tsr__stack_create_inputs(tsr_stack *stack, const tsr_partition_params *partition,
                                    const tsr_init_params *init,
                                    tsr_dtype norm_dtype) TSR_NODISCARD;

/* What a pass gives its blocks beside the features. Fields may be NULL. */
typedef struct tsr__stack_pass {
    const tsr__documents *documents; /* of packed rows */
    tsr__stack_inputs *inputs;
    tsr__shared_keys *keys; /* [layer_count]: those of a block that others use */
} tsr__stack_pass;
/* Gives it to a block, before its pass; tsr__stack_close_block takes it back. */
tsr_status tsr__stack_open_block(tsr_stack *stack, int index,
                                 const tsr__stack_pass *pass) TSR_NODISCARD;
void tsr__stack_close_block(tsr_stack *stack, int index);

/* Returns whether logits have a scale or a cap. */
static inline bool tsr__stack_finishes_logits(const tsr_stack *stack)
{
    return stack->config->logit_softcap != 0 || stack->config->logit_scale != 1;
}

/* head_loss.c: returns how many of `tokens` tokens tsr_stack_head_loss computes at once if the
 * caller does not choose: the same on all ranks. */
int64_t tsr__stack_chunk_tokens(const tsr_model_config *config, int ranks, tsr_dtype dtype,
                                int64_t tokens);

/* documents.c: checks the starts of the documents of x, [rows, tokens, …], and uploads what
 * attention needs of them. NULL: each row is a document. If a context group divides the rows, the
 * ranks exchange how. Call tsr__stack_documents_finish afterwards, also after an error. */
tsr_status tsr__stack_documents(tsr_stack *stack, const tsr_tensor *x, const int32_t *starts,
                                tsr__documents *out) TSR_NODISCARD;
void tsr__stack_documents_finish(tsr__documents *documents);

/* shard.c: tsr__stack_begin brings the parameters of a layer, or of the learned positions (NULL),
 * into memory for a pass. If it has succeeded, tsr__stack_end must be called with the status of the
 * pass, which it returns if that is an error; the gradients of the pass are then discarded. Both do
 * nothing else if the stack is not sharded. */
tsr_status tsr__stack_begin(tsr_stack *stack, tsr_layer *layer, int unit,
                            tsr_pass pass) TSR_NODISCARD;
tsr_status tsr__stack_end(tsr_stack *stack, tsr_layer *layer, int unit,
                          tsr_status pass) TSR_NODISCARD;

/* As tsr_stack_shard for a frozen stack whose layers have no memory: `source` gives it to them. */
tsr_status tsr__stack_shard_from(tsr_stack *stack, const tsr_fsdp_params *params,
                                 const tsr__fsdp_source *source) TSR_NODISCARD;
/* Returns the sharded model that has a unit other than that of `tied`; NULL: the stack is not
 * sharded. */
static inline tsr_fsdp *tsr__stack_model(const tsr_stack *stack, int unit)
{
    return !stack->places ? NULL : stack->places[unit].is_frozen ? stack->frozen : stack->sharded;
}
/* Returns the learned positions of a sharded stack as a parameter. */
const tsr_parameter *tsr__stack_positions(const tsr_stack *stack);

/* adapters.c: brings the parameters of all adapters into memory for a pass, and ends it with the
 * pass's status, which it returns if that is an error. `trained` is the number of a pass of a
 * training, otherwise 0. After a backward pass, sums gradients of parameters that all ranks have.
 * Passes of the head do nothing if the head has no adapter. */
typedef struct tsr__adapter_pass {
    tsr_pass pass;
    bool is_head;
    uint64_t trained;
} tsr__adapter_pass;
tsr_status tsr__stack_adapters_begin(tsr_stack *stack, const tsr__adapter_pass *pass) TSR_NODISCARD;
tsr_status tsr__stack_adapters_end(tsr_stack *stack, const tsr__adapter_pass *pass,
                                   tsr_status status) TSR_NODISCARD;
/* Chooses an adapter for each of `count` sequences of `tokens` rows in the next cached pass,
 * of[count], unless all are NULL: then it has those that are enabled, as other passes, otherwise
 * NULL stands for the only one that is enabled, if there is one. tsr__stack_use_none: no adapter
 * for the head, if adapters have been chosen. tsr__stack_use_enabled: ends the choice. */
tsr_status tsr__stack_use_adapters(tsr_stack *stack, int count, int64_t tokens,
                                   const tsr__stack_adapter *const *of) TSR_NODISCARD;
void tsr__stack_use_none(tsr_stack *stack);
void tsr__stack_use_enabled(tsr_stack *stack);
/* Returns whether all layers are frozen. */
bool tsr__stack_is_frozen(const tsr_stack *stack);
/* chosen.c: sets chosen[layers] of the layers that a list such as 0-3,7 names; NULL: all. `who`
 * begins the sentence of an error. */
tsr_status tsr__stack_choose(const char *who, const char *list, int layers,
                             bool *chosen) TSR_NODISCARD;
void tsr__stack_freeze(tsr_stack *stack);
/* Checks that a backward pass is possible: without sharded parameters, there is no memory for
 * gradients of the stack's own layers, and they must be frozen. */
tsr_status tsr__stack_check_backward(const tsr_stack *stack) TSR_NODISCARD;

#endif
