/* Low-rank adapters (LoRA) of a stack's linear layers, with a frozen base in any dtype, also in a
 * block format (QLoRA):
 *
 *     y = x Wᵀ + scale · (x Aᵀ) Bᵀ        A [r, in], B [out, r], scale = alpha / r
 *
 * Source: Hu et al. 2021, arXiv:2106.09685; with `rank_stabilised`, scale = alpha / √r:
 * Kalajdzievski 2023, arXiv:2312.03732.
 *
 *     tsr_lora *lora = NULL;
 *     tsr_lora_create(tsr_lora_params(.stack = tsr_model_stack(model), .rank = 16,
 *                                     .trainable = true), &lora);
 *     tsr_lora_add_to(lora, optimizer);
 *     tsr_stack_forward(stack, tokens, NULL, &saved, &hidden);
 *     …
 *     tsr_stack_backward(stack, saved, dhidden, NULL);
 *     tsr_optimizer_step(optimizer, rate);
 *     tsr_lora_save(lora, "adapter", TSR_LORA_PEFT, NULL);
 *
 * A and B are f32. On a tensor-parallel group, a column-parallel layer (q, k, v, gate, up) has A on
 * every rank, and B for its own features; a row-parallel layer (o, down) has A for its own
 * features, and B on every rank. Passes need no collective operation in addition;
 * tsr_stack_backward sums the gradients of A and B that every rank has, by one all-reduce. Each
 * expert has an A and a B of its own, which the ranks divide as they divide the experts' weights;
 * data-parallel ranks must not divide the experts (experts_over_data of moe.h). Families whose
 * files have the matrices of all experts in one tensor, such as gpt-oss, cannot have adapters of
 * experts (TSR_ERR_UNSUPPORTED).
 *
 * All ranks of the stack's group, and of all stages, must make the same calls in the same order.
 * Errors of all calls: TSR_ERR_INVALID with a text that names the values, those of layers
 * (layer.h), TSR_ERR_NO_MEMORY and TSR_ERR_DEVICE_MEMORY.
 *
 * Threads: as for the group. */
#ifndef TESSERA_LORA_H
#define TESSERA_LORA_H

#include "tessera/stack.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The weights that have an adapter; a set of them is their sum. Q, K, V and O are those of
 * attention and of delta nets, and b, c, x and o of short convolutions; GATE is that of MLPs, and z
 * of delta nets. With latent attention, Q is q, or q_a and q_b; K is kv_a, and k_b, and V is v_b,
 * which have one matrix A, because files have them as one weight. Sequences, DoRA and GGUF files
 * cannot have adapters of latent attention (TSR_ERR_UNSUPPORTED), except that GGUF files can have
 * those of q, q_a, q_b and kv_a, and all of them that of o. */
typedef enum tsr_lora_target {
    TSR_LORA_Q = 1,
    TSR_LORA_K = 2,
    TSR_LORA_V = 4,
    TSR_LORA_O = 8,
    TSR_LORA_GATE = 16,
    TSR_LORA_UP = 32,
    TSR_LORA_DOWN = 64,
    TSR_LORA_EXPERTS = 128, /* gate, up and down of each expert, and of a shared one */
    TSR_LORA_HEAD = 256     /* not of a head that is the embedding */
} tsr_lora_target;

typedef struct tsr_lora tsr_lora;

typedef struct tsr_lora_params {
    size_t struct_size;
    tsr_stack *stack; /* of a training, or of a model (tsr_model_stack); must outlive the adapter */
    const char *name; /* copied; NULL: "default" */
    /* of tsr_lora_target; 0: q, k, v, o, gate, up, down, as far as it has them. With `dora`, also
     * all weights that share a tensor of a folder with one of these. */
    unsigned targets;
    int rank;     /* r; 0: 8 */
    double alpha; /* 0: 2 · rank */
    bool rank_stabilised;
    /* The probability with which an element of x before A is 0 in passes that are followed by a
     * backward pass; others are divided by 1 − dropout. A head's masks are those of the stack's
     * last forward pass. The weights of one layer, such as q, k and v, share a mask. */
    double dropout;
    /* A is uniform in ±1/√in, as in PEFT, drawn from this seed at each element's place in the full
     * matrix, so that it is the same for any number of ranks. B is 0. */
    int64_t seed;
    /* The passes of the stack, followed by backward passes, before a training went on (those of
     * tsr_lora_info when it was saved): masks are those that follow. */
    uint64_t passes;
    bool trainable; /* backward passes compute the gradients of A and B */
    /* Multiplies what the adapter adds in passes, not what its files have. 0: 1; TSR_ZERO: 0. */
    double scale;
    /* DoRA (Liu et al. 2024, arXiv:2402.09353): y = m / ‖W + scale · B A‖ · (x Wᵀ + scale · (x Aᵀ)
     * Bᵀ), where the norm is that of each row, and counts as a constant in backward passes. The
     * magnitudes m [out] are trained, too, and are ‖W‖ at first, so the weights must be in memory,
     * and creating is collective. Not with dropout, experts, or other adapters of the same weight;
     * sequences cannot have them, and GGUF files neither (TSR_ERR_UNSUPPORTED). */
    bool dora;
    /* The layers that have an adapter, as numbers and ranges from 0 on, such as "0-3,7". The head
     * counts as none of them. NULL: all. */
    const char *layers;
} tsr_lora_params;
#define tsr_lora_params(...)                                                                       \
    (&(tsr_lora_params){.struct_size = sizeof(tsr_lora_params), __VA_ARGS__})

/* Attaches a new adapter to the layers of a stack. If it is trainable and the stack is not sharded,
 * freezes all layers of the stack (tsr_layer_set_frozen): backward passes then need no
 * tsr_stack_shard and compute only the adapter's gradients. Not collective. Errors also:
 * TSR_ERR_INVALID for targets that the model does not have. */
TSR_API TSR_NODISCARD tsr_status tsr_lora_create(const tsr_lora_params *params, tsr_lora **out);
/* Attaches an adapter from files: a PEFT folder (adapter_config.json, adapter_model.safetensors),
 * or a GGUF adapter of llama.cpp (general.type "adapter", adapter.type "lora", tensors
 * NAME.lora_a and NAME.lora_b). Targets, rank and alpha are those of the files; of `params` only
 * stack, name, trainable, scale, dropout and its seed are used. Each rank reads only its part. Not
 * collective.
 *
 * The files may be hostile. Nothing is attached after an error: TSR_ERR_NOT_FOUND for a file, or
 * for a tensor whose other half is there; TSR_ERR_INVALID for a tensor that the model does not
 * have, or of another shape than its weight needs, naming it, and for wrong JSON or metadata;
 * TSR_ERR_UNSUPPORTED for modules_to_save, biases, patterns that are regular expressions, and other
 * kinds of adapters, naming them; TSR_ERR_IO. */
TSR_API TSR_NODISCARD tsr_status tsr_lora_load(const char *path, const tsr_lora_params *params,
                                               tsr_lora **out);
/* Detaches an adapter, and frees its parameters. Destroy optimizers that have them first, and the
 * stack afterwards. Sets *lora to NULL. NULL is allowed. */
TSR_API void tsr_lora_destroy(tsr_lora **lora);

typedef enum tsr_lora_format {
    TSR_LORA_PEFT = 0, /* a folder, which is created if it does not exist */
    TSR_LORA_GGUF = 1  /* a file for llama.cpp */
} tsr_lora_format;
/* Writes an adapter, under a temporary name that becomes the final one when all is on the disk.
 * `stages` is as for tsr_stack_save; NULL: one stage. Collective over all ranks of all stages; the
 * first rank of each stage writes. Errors also: those of tsr_checkpoint_save, TSR_ERR_IO. */
TSR_API TSR_NODISCARD tsr_status tsr_lora_save(tsr_lora *lora, const char *path,
                                               tsr_lora_format format, tsr_comm *stages);

/* Divides an adapter's parameters, gradients and optimizer state over a data-parallel group, as one
 * unit of sharded parameters (fsdp.h), so that backward passes reduce its gradients. `params` are
 * those of tsr_fsdp_create; units and unit_count must be 0. Call it before tsr_lora_add_to.
 * Collective over that group. tsr_lora_reshard divides them again after the group has changed, as
 * tsr_stack_reshard. */
TSR_API TSR_NODISCARD tsr_status tsr_lora_shard(tsr_lora *lora, const tsr_fsdp_params *params);
TSR_API TSR_NODISCARD tsr_status tsr_lora_reshard(tsr_lora *lora, const tsr_fsdp_params *params);
/* Adds all parameters of a trainable adapter to an optimizer. */
TSR_API TSR_NODISCARD tsr_status tsr_lora_add_to(tsr_lora *lora, tsr_optimizer *optimizer);
/* Passes ignore an adapter that is not enabled: they compute what the stack computes without it,
 * bit for bit. Must not change between a forward pass and its backward pass. NULL is allowed. */
TSR_API void tsr_lora_set_enabled(tsr_lora *lora, bool enabled);

/* Adds scale · B A to the weights in memory, and disables the adapter. Errors also, before anything
 * changes: TSR_ERR_UNSUPPORTED for weights in a block format; TSR_ERR_INVALID for a stack or an
 * adapter that is sharded, and for an adapter that is not enabled. */
TSR_API TSR_NODISCARD tsr_status tsr_lora_merge(tsr_lora *lora);

typedef struct tsr_lora_info {
    size_t struct_size;
    const char *name; /* valid as long as the adapter */
    unsigned targets;
    int rank; /* of most weights */
    double alpha, dropout;
    bool rank_stabilised, trainable, enabled;
    uint64_t parameters; /* the elements of A and B, and magnitudes, of the whole model */
    bool dora;
    uint64_t passes; /* forward passes of the stack that were followed by backward passes */
} tsr_lora_info;
/* Describes an adapter. */
TSR_API TSR_NODISCARD tsr_status tsr_lora_get_info(const tsr_lora *lora, tsr_lora_info *out);

#ifdef __cplusplus
}
#endif

#endif
