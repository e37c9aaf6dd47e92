/* Language models from files: a Hugging Face folder (config.json, and model.safetensors or its
 * index) or one GGUF file. A model is opened by all ranks of a group. Each rank reads and keeps
 * only its part of the weights: whole heads, a part of the hidden features of each MLP, and a part
 * of the vocabulary.
 *
 *     tsr_model_file *file = NULL;
 *     tsr_model *model = NULL;
 *     tsr_model_file_open("stories.gguf", &file);
 *     tsr_model_open(file, tsr_model_params(.group = group), &model);
 *     tsr_model_file_close(&file);
 *     … tsr_generator_create (generator.h) …
 *     tsr_model_close(&model);
 *
 * Files may be hostile. Everything that the header of a file says is checked before any weight is
 * read: the architecture, the sizes, and the name and shape of each tensor.
 *
 * Threads: as for the model's group. */
#ifndef TESSERA_MODEL_H
#define TESSERA_MODEL_H

#include "tessera/moe.h"
#include "tessera/pipeline.h"
#include "tessera/tokenizer.h"
#include "tessera/transformer.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_MODEL_MAX_LAYERS 1024
#define TSR_MODEL_MAX_WIDTH 1048576  /* features of a token; also the most heads · head_dim */
#define TSR_MODEL_MAX_HIDDEN 8388608 /* hidden features of an MLP */
#define TSR_MODEL_MAX_VOCABULARY 16777216
#define TSR_MODEL_MAX_CONTEXT 1073741824 /* positions */
#define TSR_MODEL_MAX_END_TOKENS 16
#define TSR_MODEL_MAX_NEXT_TOKEN_LAYERS 8

/* Configuration ------------------------------------------------------------------------------ */

#define TSR_MODEL_MAX_LAYER_KINDS 16

/* The mixture of experts of a layer (moe.h). */
typedef struct tsr_model_experts {
    size_t struct_size;
    int64_t count, used; /* the number of experts, and of those that a token uses */
    int64_t hidden;      /* features inside one expert */
    tsr_gating gating;
    bool normalise;                      /* a token's weights are divided by their sum */
    double scale;                        /* the factor of weights; 0: 1 */
    int groups, groups_used;             /* as in tsr_route_params */
    bool router_bias, choice_bias, bias; /* as in tsr_moe_params */
    tsr_expert_activation activation;
    double limit;          /* as in tsr_moe_params */
    int64_t shared_hidden; /* features inside a shared expert; 0: there is none */
    bool shared_gate;      /* as in tsr_moe_params */
    /* The layer has an MLP of `hidden` features as well, and the sum of both, each with a norm
     * after it, is the MLP's (transformer.h); experts then have an input_norm of their own. */
    bool beside_mlp;
    bool router_norm, expert_scale; /* as in tsr_moe_params */
} tsr_model_experts;

/* A gated delta net, which a layer may have in place of attention (transformer.h). */
typedef struct tsr_model_delta_net {
    size_t struct_size;
    int64_t key_heads, heads; /* head h reads key head h · key_heads / heads */
    int64_t key_dim, value_dim;
    int taps; /* of the causal convolution; 0: 4 */
} tsr_model_delta_net;

/* Latent attention (transformer.h). */
typedef struct tsr_model_latent {
    size_t struct_size;
    int64_t kv_lora_rank, nope_dim, rope_dim, value_dim;
    int64_t q_lora_rank; /* 0: queries are not compressed */
} tsr_model_latent;

/* How the ranks divide experts. */
typedef enum tsr_expert_division {
    /* Inside experts, unless their hidden features have fewer than 4 quantisation blocks for each
     * rank, so that shares would be coarse; whole experts then. Mixed over several hosts if the
     * slowest rank, by its rate, is then expected to take at most 0.9 of the time for a token's
     * experts. The messages are the same for all divisions. */
    TSR_EXPERT_DIVISION_AUTO = 0,
    TSR_EXPERT_DIVISION_INSIDE = 1, /* each rank has a part of every expert */
    TSR_EXPERT_DIVISION_WHOLE = 2,  /* each rank has some of the experts, or none */
    /* The ranks of a host have some of the experts together, and each of them a part of these. */
    TSR_EXPERT_DIVISION_MIXED = 3
} tsr_expert_division;

/* What a layer of a model consists of. Layers that are equal share one description, their kind. */
typedef struct tsr_model_layer {
    size_t struct_size;
    int64_t heads, kv_heads, head_dim;
    int64_t hidden;              /* features inside the MLP; unused with `experts` in its place */
    int64_t window;              /* a token sees only the last `window` tokens; 0: all */
    const tsr_rope_params *rope; /* NULL: none */
    bool qkv_bias, output_bias, mlp_bias;
    tsr_qk_norm qk_norm;
    bool gated; /* the MLP has a gate */
    tsr_activation activation;
    tsr_block_norms norms;
    double attention_scale; /* of scores; 0: 1/√head_dim */
    double softcap;         /* of scores; 0: none */
    /* Used instead of `rope` if the context is longer than rope->original_length: that of
     * tsr_model_params, or of the configuration if it is 0. NULL: always `rope`. */
    const tsr_rope_params *long_rope;
    double temperature;         /* of scores, as in transformer.h; 0: none */
    int64_t temperature_length; /* unused without temperature */
    /* A mixture of experts in place of the MLP. NULL: none. */
    const tsr_model_experts *experts;
    bool sinks; /* attention has a sink for each head, as in transformer.h */
    /* Latent attention; kv_heads is then heads, and head_dim nope_dim + rope_dim. NULL: the usual
     * attention. */
    const tsr_model_latent *latent;
    /* A gated delta net in place of attention. All fields that describe attention are then 0. NULL:
     * the layer has attention. */
    const tsr_model_delta_net *delta_net;
    bool output_gate;                /* attention has a gate of its output, as in transformer.h */
    bool value_norm, keys_as_values; /* as in tsr_self_attention_params */
    /* The layer has no keys and values: it uses those of the last layer before it with the same
     * `window`, heads and head_dim that has its own, which has the same value_dim. Both must be in
     * one stage. */
    bool shared_keys;
    bool output_scale; /* as in tsr_block_params */
    /* A short convolution of so many taps in place of attention (transformer.h). All fields that
     * describe attention are then 0. 0: none. */
    int conv_taps;
    /* the head_dim of values; 0: head_dim or, with latent attention, its value_dim. Never 0 in a
     * configuration that the library gives, unless the layer has no attention. */
    int64_t value_dim;
} tsr_model_layer;

/* The properties of a model that its files describe. */
typedef struct tsr_model_config {
    size_t struct_size;
    /* The name of the family, which is model_type in a config.json, such as "llama"
     * (docs/models.md lists them); static storage. GGUF files call Mistral's models "llama". */
    const char *architecture;
    int layers;
    int64_t width; /* features of a token between layers */
    int64_t vocabulary;
    int64_t context; /* positions that the model was made for */
    double norm_epsilon;
    tsr_norm_kind norm;
    bool norm_bias;
    bool learned_positions; /* [context, width], added to the embedding */
    bool tied;              /* the output head uses the weights of the embedding */
    /* The ids of the token that begins a text (-1: none), and of those that end one. */
    int32_t bos;
    int end_count;
    int32_t end[TSR_MODEL_MAX_END_TOKENS];
    int kind_count;                      /* 1 to TSR_MODEL_MAX_LAYER_KINDS */
    const tsr_model_layer *const *kinds; /* [kind_count] */
    /* [layers]: the kind of each layer, so that layer i is *kinds[layer_kinds[i]]. NULL: all layers
     * are kind 0; never in a configuration that the library gives. */
    const uint16_t *layer_kinds;
    double embedding_scale; /* multiplies the embedding; 0: 1 */
    double residual_scale;  /* of all blocks (transformer.h); 0: 1 */
    double logit_scale;     /* multiplies the logits; 0: 1 */
    double logit_softcap;   /* c of logits c · tanh(logits / c), after logit_scale; 0: none */
    /* The number of layers in the files that predict further tokens. They are numbered after the
     * others, and are of the kind of the last layer that has attention. tsr_model_convert keeps
     * them; models compute the first one if tsr_model_params.next_token says so. */
    int next_token_layers;
    /* Each layer gets an input of so many features for each token, the sum of a row of a table and
     * a projection of the embedding, as in Gemma 4. 0: none. Only with one stage. */
    int64_t layer_input;
} tsr_model_config;

/* Returns the number of parameters of a layer, or with layer −1 of the whole model, in which a tied
 * head counts once, and layers that predict further tokens do not count. Returns 0 if the
 * configuration is not valid or there is no such layer. */
TSR_API uint64_t tsr_model_config_parameters(const tsr_model_config *config, int layer);

/* Files -------------------------------------------------------------------------------------- */

/* The files of a model, whose header and configuration have been read and checked. An opened file
 * is used to make plans, to open the model and its tokenizer, and to convert it, without reading
 * its header again. Thread-safe: it does not change after it has been opened. */
typedef struct tsr_model_file tsr_model_file;

/* Opens a model's files: a folder, a GGUF file, a safetensors file or index with a config.json
 * beside it, or a config.json alone, for its configuration. Reads the configuration (config.json,
 * and generation_config.json if there is one, or the metadata of a GGUF file) and the list of
 * tensors, but no weights. Tensors that are missing, or have other shapes than the configuration
 * implies, are errors of the functions that need them. Errors: TSR_ERR_NOT_FOUND, TSR_ERR_IO, those
 * of tsr_shard_list_open; TSR_ERR_UNSUPPORTED for an architecture, activation or frequency scaling
 * that is not supported, naming it; TSR_ERR_INVALID for values that are missing, contradict each
 * other or are beyond the limits above, naming them; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_model_file_open(const char *path, tsr_model_file **out);
/* Opens a model with random weights, for measurements and tests without files. `config` is copied.
 * Matrices are of `dtype`, f32, f16, bf16 or a block format that tsr_quantize supports, and
 * normally distributed with a standard deviation of 1/√width. The weights depend on the seed and
 * the configuration, not on the number of ranks, and on the dtype by its rounding only. The model
 * has no tokenizer and cannot be converted. Errors: TSR_ERR_INVALID for a configuration or dtype,
 * naming the value; TSR_ERR_UNSUPPORTED for a format that tsr_quantize does not support;
 * TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_model_file_open_random(const tsr_model_config *config,
                                                            tsr_dtype dtype, uint64_t seed,
                                                            tsr_model_file **out);
/* Opens files of weights for a model of this configuration, which is copied. `path` is a folder, a
 * GGUF file, or a safetensors file or its index; a configuration among these files is not read. The
 * files must have all weights, in dtypes that can be read. Errors: those of tsr_shard_list_open;
 * TSR_ERR_INVALID for a configuration, naming the value; TSR_ERR_NOT_FOUND, TSR_ERR_INVALID and
 * TSR_ERR_UNSUPPORTED for a tensor, naming it; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_model_file_open_weights(const char *path,
                                                             const tsr_model_config *config,
                                                             tsr_model_file **out);
/* Closes the files and sets *file to NULL. NULL is allowed. Models that were opened from them are
 * not affected. */
TSR_API void tsr_model_file_close(tsr_model_file **file);

/* Returns the configuration, which is valid as long as the file. */
TSR_API const tsr_model_config *tsr_model_file_config(const tsr_model_file *file);
/* Opens the model's tokenizer, as tsr_tokenizer_open (tokenizer.h). Errors: those of
 * tsr_tokenizer_open; TSR_ERR_NOT_FOUND for a random model. */
TSR_API TSR_NODISCARD tsr_status tsr_model_file_open_tokenizer(const tsr_model_file *file,
                                                               tsr_tokenizer **out);

/* Models ------------------------------------------------------------------------------------- */

typedef struct tsr_model tsr_model;

typedef struct tsr_model_params {
    size_t struct_size;
    tsr_group *group; /* NULL: tsr_group_default() */
    /* The dtype in which matrices are kept: f32, f16, bf16 or a block format that tsr_quantize
     * supports. 0: each in the dtype that the files have. A matrix is not kept in blocks if its
     * rows, or a rank's part of them, are not whole blocks; it then has the dtype given here, if
     * that is a float, otherwise the dtype of the files' embedding, or f32 if that is quantised.
     * Biases and learned positions have the same dtype as such matrices. Norms and activations are
     * f32. */
    tsr_dtype dtype;
    /* How heads, hidden features and the vocabulary are divided. NULL: sizes differ by at most one
     * head or feature, or, for matrices in blocks, by one block. `align` and `limits` are ignored.
     */
    const tsr_partition_params *partition;
    /* Stages (pipeline.h), each of which has some of the layers: a communicator of one rank of each
     * stage, those with the same place (rank 0 of every stage, rank 1 of every stage, …), in the
     * order of the stages. `group` then has the ranks of this stage. Needed only while the model is
     * opened. NULL: one stage. */
    tsr_comm *stages;
    /* [stages]: the number of layers of each stage; NULL: divided by tsr_pipeline_divide so that
     * all stages need the same time for a token, with the head on the last one. If a stage has too
     * little memory for its layers, some of them move to stages that have room. */
    const int *stage_layers;
    /* [stages]: the speed of each stage, in any unit; more than 0. Divides the layers, and is
     * ignored with stage_layers. NULL: all the same. */
    const double *stage_rates;
    /* The bytes of device memory that this rank's weights and its cache may take. 0: all that the
     * device has left. If ranks share a device, each of them counts all of that device's memory. */
    uint64_t memory_bytes;
    /* The cache of keys and values of the generator that will be created: sequences of `context`
     * tokens each. Its memory counts when tsr_model_open checks whether the model fits. context 0:
     * no cache. */
    int64_t context;
    int sequences;         /* 0: 1 */
    tsr_dtype cache_dtype; /* as in tsr_generator_params, also the default */
    /* Called on each rank now and then while weights are read, with the bytes that this rank has
     * read so far and will read in total. NULL: not called. */
    void (*progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);
    void *user;
    /* How experts are divided, in the proportions that `partition` says. Ranks that have too little
     * memory for their share of whole experts leave some to others of their stage. Tokens do not
     * depend on it. */
    tsr_expert_division expert_division;
    /* With adapters that are trained (lora.h): blocks keep only their inputs for the backward pass,
     * as in tsr_stack_params. */
    bool recompute;
    /* The matrices of experts of this many layers, the first ones that have experts, stay in the
     * host's memory (tsr_tensor_create_host), and count neither as weight_bytes nor against the
     * device's memory. The device reads those of chosen experts through its bus: for each token,
     * and once or more for the tokens of a prompt that are computed together. 0: none. More than
     * there are: all. All ranks must give the same. */
    int host_experts;
    /* With layers that have states (delta nets): the draft_tokens and, with a prefix_cache, the
     * snapshots of the generator, which need memory. 0: the usual drafts; no snapshots */
    int draft_tokens, snapshots;
    /* For TSR_EXPERT_DIVISION_MIXED and _AUTO: [ranks]: the number of the host of each rank of
     * `group`, 0 to ranks − 1; all ranks must give the same. NULL: as tsr_comm_host says. */
    const int *hosts;
    /* Also opens the first of the layers that predict further tokens (next_token_layers), for
     * TSR_DRAFT_MTP. Its weights and its cache count when tsr_model_open checks whether the model
     * fits. The last stage has it, and another copy of the embedding for it unless it has one as
     * its head. All ranks must give the same. */
    bool next_token;
    /* For adapters that are trained (lora.h): data-parallel ranks, all of which open the same part
     * of the model, divide its weights as tsr_stack_shard divides those of a frozen stack. Layers
     * have memory one after the other while they are read, so that no rank has more than its shards
     * and one layer. The memory of the ranks counts together. NULL: each rank keeps its weights. */
    tsr_group *sharded_over;
    /* Ranks that divide the tokens of sequences, each of which opens the same part of the model: a
     * group of one rank of each of them, those with the same place in `group`, whose stream it has.
     * They compute the tokens of prompts together, and each keeps the keys and values of its own
     * tokens (see docs/models.md), which needs one stage; rows of training are divided as in
     * tsr_stack_params. Without next_token. The group must outlive the model. NULL: no ranks do. */
    tsr_group *context_group;
} tsr_model_params;
#define tsr_model_params(...)                                                                      \
    (&(tsr_model_params){.struct_size = sizeof(tsr_model_params), __VA_ARGS__})

/* Opens a model: checks that the files have each tensor in the shape that the configuration
 * implies, and then reads this rank's weights. Weights of another dtype are converted. Needs host
 * memory for one staging buffer of at most a few MiB. All ranks must call it, with files of the
 * same contents. Blocks until all ranks have read their weights. A rank whose file could not be
 * opened passes NULL: the call then fails on all ranks, with a text that names this rank.
 *
 * Errors: TSR_ERR_NOT_FOUND for a tensor that is missing; TSR_ERR_INVALID for one of another shape;
 * TSR_ERR_UNSUPPORTED for one of a dtype that cannot be converted; TSR_ERR_DEVICE_MEMORY on all
 * ranks if the model does not fit into the memory of the ranks, before weights are read, naming the
 * bytes that each rank or stage lacks and what would fit; TSR_ERR_OVERFLOW if the cache is larger
 * than 2^63 − 1 bytes; TSR_ERR_INVALID if the params of the ranks divide the layers over the stages
 * in different ways; TSR_ERR_IO; those of tsr_quantize, and of creating layers and tensors. If a
 * rank fails, the others fail too, with a text that names it. */
TSR_API TSR_NODISCARD tsr_status tsr_model_open(const tsr_model_file *file,
                                                const tsr_model_params *params, tsr_model **out);

/* Frees a model. Destroy its generators first. Not collective. Sets *model to NULL. NULL is
 * allowed. */
TSR_API void tsr_model_close(tsr_model **model);

/* Returns the configuration, which is valid as long as the model. */
TSR_API const tsr_model_config *tsr_model_get_config(const tsr_model *model);

/* Returns the layers of this stage (stack.h), to which adapters can be attached (lora.h). They
 * belong to the model. NULL for a NULL. */
TSR_API struct tsr_stack *tsr_model_stack(const tsr_model *model);

typedef struct tsr_model_stats {
    size_t struct_size;
    uint64_t parameters;   /* the parameters of the full model; a tied head counts once */
    uint64_t weight_bytes; /* the weights that this rank keeps on its device */
    uint64_t table_bytes;  /* the part of weight_bytes in tables of which a token needs one row: an
                              embedding that is not the head, and learned positions */
    tsr_dtype dtype;       /* the dtype of most of weight_bytes */
    /* the dtype of biases, of learned positions, and of matrices whose blocks cannot be divided */
    tsr_dtype other_dtype;
    uint64_t read_bytes;     /* weights that this rank has read from files */
    uint64_t open_ns;        /* the time that opening took */
    int64_t heads, kv_heads; /* of this rank in the stage's first layer with attention */
    int first_layer, layers; /* of this rank's stage: the first layer, and the number of layers */
    uint64_t host_bytes;     /* the weights that this rank keeps in the host's memory */
} tsr_model_stats;
/* Errors: TSR_ERR_INVALID for a NULL. */
TSR_API TSR_NODISCARD tsr_status tsr_model_get_stats(const tsr_model *model, tsr_model_stats *out);

/* Planning ----------------------------------------------------------------------------------- */

#define TSR_MODEL_PLAN_MAX_RANKS 65536
#define TSR_MODEL_PLAN_MAX_ADVICE 64 /* the most ranks that tsr_model_fit names */

typedef struct tsr_model_plan_params {
    size_t struct_size;
    int ranks;       /* 0: 1 */
    tsr_dtype dtype; /* as `dtype` in tsr_model_params */
    /* As in tsr_model_params, but with the rates of the ranks of all stages. Each stage uses the
     * rates of its own ranks. */
    const tsr_partition_params *partition;
    /* The cache of keys and values: sequences of `context` tokens each. */
    int64_t context;       /* 0: the model's */
    int sequences;         /* 0: 1 */
    tsr_dtype cache_dtype; /* f32, f16, bf16, q8_0 or q4_0; 0: f32 */
    /* Stages, which must divide the ranks: the first ranks / stages ranks are stage 0. 0: 1. */
    int stages;
    const int *stage_layers;             /* as in tsr_model_params */
    const double *stage_rates;           /* as in tsr_model_params */
    tsr_expert_division expert_division; /* as in tsr_model_params */
    int host_experts;                    /* as in tsr_model_params */
    int draft_tokens, snapshots;         /* as in tsr_model_params */
    /* As in tsr_model_params, but of the ranks of all stages; numbers count in each stage, from 0
     * to ranks / stages − 1. NULL: all ranks are on one host. */
    const int *hosts;
    bool next_token; /* as in tsr_model_params */
    /* So many ranks in place of each rank divide sequences, as the context_group of
     * tsr_model_params. `ranks` does not count them: the plan is that of each of them. Without
     * next_token. 0: 1. */
    int context_ranks;
} tsr_model_plan_params;
#define tsr_model_plan_params(...)                                                                 \
    (&(tsr_model_plan_params){.struct_size = sizeof(tsr_model_plan_params), __VA_ARGS__})

/* What a rank will hold. */
typedef struct tsr_model_rank_plan {
    size_t struct_size;
    /* numbers of heads and hidden features in the stage's first layer with attention, and of
     * tokens */
    int64_t heads, kv_heads, hidden, vocabulary;
    uint64_t embedding_bytes; /* the embedding, and learned positions */
    uint64_t attention_bytes; /* and delta nets */
    uint64_t mlp_bytes, norm_bytes;
    uint64_t head_bytes;   /* 0 if the head is the embedding */
    uint64_t weight_bytes; /* the sum of the five above; equals weight_bytes of tsr_model_stats */
    uint64_t cache_bytes;  /* keys and values, and the states of delta nets */
    uint64_t total_bytes;  /* weights and cache, without activations and staging memory */
    /* What generating a token reads and multiplies: all weights except tables of which it needs one
     * row, and experts that it does not use. Of whole experts that a rank has, a token is counted
     * with as large a part as it uses of all. */
    uint64_t token_bytes;
    uint64_t token_parameters; /* the elements of the matrices among them */
    int stage;
    int first_layer, layers; /* of the stage: the first layer, and the number of layers */
    /* Of the stage's first layer with experts: the experts of which the rank has weights, and the
     * hidden features that it has of each. 0: the stage has no experts. */
    int64_t experts, expert_hidden;
    uint64_t expert_bytes; /* the part of mlp_bytes in experts that only some tokens use */
    /* Experts in the host's memory, of which the fields above count only token_parameters, and what
     * a token reads of them. */
    uint64_t host_bytes, host_token_bytes;
    /* The part of cache_bytes in states of delta nets, and the part of that in the present states
     * of sequences, the others being earlier states and snapshots. A token reads and writes its
     * sequence's present state once. */
    uint64_t state_bytes, used_state_bytes;
    uint64_t expert_parameters; /* the part of token_parameters in experts */
    /* How the stage's first layer with experts is divided; TSR_EXPERT_DIVISION_AUTO: the stage has
     * no experts. */
    tsr_expert_division expert_division;
    /* Tokens choose some of the experts, so ranks or hosts with whole experts have unequal work.
     * This is the expected work of the slowest rank of the stage, if each sequence generates a
     * token and all choices are equally probable, divided by its work if every rank had its part of
     * the chosen experts; at least 1. */
    double expert_skew;
} tsr_model_rank_plan;

/* Whether a plan fits. */
typedef struct tsr_model_fit {
    size_t struct_size;
    /* The bytes that the rank with the largest shortage lacks; 0: all ranks fit. */
    uint64_t missing_bytes;
    int rank; /* the rank with the largest shortage; -1: all ranks fit */
    /* If a rank does not fit: the smallest number of ranks with equal shares that would fit, if
     * each had the smallest of the memories; and the widest dtype with which the given ranks would
     * fit. 0: none. With several stages, the ranks are in more stages, each with as many ranks as
     * now.
     */
    int ranks;
    tsr_dtype dtype;
    /* If a rank does not fit: the smallest host_experts with which the given ranks would fit. 0:
     * none. */
    int host_experts;
} tsr_model_fit;

/* Computes what each rank will hold of a model, from the header of its files, and writes it to
 * ranks[params->ranks], each of which needs its struct_size. Reads no weights, and needs no device.
 * memory_bytes[params->ranks] is the memory of each rank, or 0 for no limit; `fit` then says
 * whether the plan fits. Both may be NULL. Memory also decides how layers are divided over stages,
 * as in tsr_model_open. If the layers do not fit, stages get more of them than they have memory
 * for, as few more as possible. Errors: TSR_ERR_NOT_FOUND, TSR_ERR_INVALID and TSR_ERR_UNSUPPORTED
 * for tensors, as tsr_model_open; TSR_ERR_OVERFLOW if the cache is larger than 2^63 − 1 bytes;
 * TSR_ERR_INVALID for a param, naming it, and those of tsr_partition. */
TSR_API TSR_NODISCARD tsr_status tsr_model_plan(const tsr_model_file *file,
                                                const tsr_model_plan_params *params,
                                                const uint64_t *memory_bytes,
                                                tsr_model_rank_plan *ranks, tsr_model_fit *fit);

#ifdef __cplusplus
}
#endif

#endif
