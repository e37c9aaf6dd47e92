/* The internal interface of adapters.
 *
 *     lora.c     creates an adapter, attaches it to the layers, and divides its parameters
 *     modules.c  the weights of a model that an adapter can have, and their names in files
 *     files.c    opens and checks PEFT folders and GGUF files; needs no device
 *     load.c     reads their values into the layers
 *     config.c   adapter_config.json
 *     save.c     writes PEFT folders and GGUF files
 *
 * A *module* is a weight of the whole model that has an adapter. */
#ifndef TSR_MODEL_LORA_LORA_H
#define TSR_MODEL_LORA_LORA_H

#include "model/stack/stack.h"
#include "model/weights/weights.h"
#include "tessera/lora.h"

#define TSR__LORA_TARGETS 29
#define TSR__LORA_MAX_ALPHA 1e30 /* scales are f32 */

/* A weight that can have an adapter. */
typedef struct tsr__lora_target_name {
    unsigned flag;    /* of tsr_lora_target */
    const char *ours; /* the weight's name in weights.h */
} tsr__lora_target_name;
extern const tsr__lora_target_name tsr__lora_targets[TSR__LORA_TARGETS];

typedef struct tsr__lora_module {
    int layer, target; /* layer: −1 for the head; target: an index of tsr__lora_targets */
    int64_t inputs, outputs, rank;
    int64_t experts; /* the number of its matrices A and of its matrices B; 0: one, of no expert */
    double alpha;
} tsr__lora_module;

struct tsr_lora {
    tsr_stack *stack;
    char *name;
    tsr__stack_adapter adapter; /* in the stack's list; its layer is NULL before that */
    tsr_group *data;            /* the group over which the parameters are sharded */
    bool is_attached, trainable, rank_stabilised, dora;
    int rank;
    double alpha, dropout;
    int64_t seed;
    uint64_t passes; /* of tsr_lora_params */
    double scale;    /* of tsr_lora_params */
    size_t module_count, module_capacity;
    tsr__lora_module *modules; /* of the whole model, layer by layer, in the order of the targets;
                                * the head comes last */
};

/* Returns the layer of this stage that has the modules of a layer of the model, −1: of the head; or
 * NULL. */
static inline tsr_layer *tsr__lora_layer(const tsr_stack *stack, int layer)
{
    return layer < 0 ? stack->head : tsr_stack_block(stack, layer - stack->first_layer);
}

/* modules.c */

/* PEFT adapts k_b and v_b of all heads of latent attention as one linear layer, kv_b, whose rows
 * are those of k_b's columns and of v_b, head by head. GGUF adapters have matrices A and B of each
 * head, which only tsr_model_convert can add. tsr__adapter_as_linear changes the description of k_b
 * or v_b to that of these rows; tsr__adapter_place_heads changes a place in a folder to theirs.
 * Neither changes anything of other parameters. */
bool tsr__adapter_is_of_heads(const char *ours); /* k_b or v_b */
void tsr__adapter_as_linear(tsr__parameter *parameter);
void tsr__adapter_place_heads(const tsr_model_config *config, int layer, const char *ours,
                              tsr__weight *place);

/* Returns whether a module is a weight of latent attention other than o. */
bool tsr__lora_is_latent(const tsr_model_config *config, const tsr__lora_module *module);
/* Finds the weight of a target in a layer. Matrices of heads count as one weight, as in files of
 * adapters (tsr__adapter_as_linear). */
bool tsr__lora_find_parameter(const tsr_lora *lora, int layer, int target, tsr__parameter *out);
/* Adds a module with the rank and alpha of the adapter. Errors: TSR_ERR_UNSUPPORTED for experts
 * whose weights have no names of their own in Hugging Face files. */
tsr_status tsr__lora_add_module(tsr_lora *lora, int layer, int target,
                                const tsr__parameter *parameter) TSR_NODISCARD;

/* The place of a module's weight, of experts that of one expert, in a model's files: the name of
 * its tensor, without the ending ".weight" (PEFT's name of the module), and which rows of the
 * tensor it is. */
typedef struct tsr__lora_place {
    char name[TSR__WEIGHT_NAME];
    int64_t first_row, all_rows;        /* of the tensor, which several of our weights may share */
    int64_t interleaved_head;           /* as in tsr__weight */
    tsr__order row_order, column_order; /* the same */
} tsr__lora_place;
tsr_status tsr__lora_find_place(const tsr_stack *stack, const tsr__lora_module *module,
                                int64_t expert, bool gguf, tsr__lora_place *out) TSR_NODISCARD;

/* Names of parameters: `which` is 'A', 'B', or 'M' for magnitudes. */
#define TSR__LORA_NAME (TSR__WEIGHT_NAME + 48)
tsr_status tsr__lora_parameter_name(const tsr_stack *stack, const tsr__lora_module *module,
                                    char which, char out[TSR__LORA_NAME]) TSR_NODISCARD;
/* The name of a tensor in a file: PREFIX module.lora_A.weight, or NAME.weight.lora_a; of magnitudes
 * PREFIX module.lora_magnitude_vector. */
void tsr__lora_file_name(const tsr__lora_place *place, bool gguf, char which,
                         char out[TSR__LORA_NAME]);
float tsr__lora_scale(const tsr_lora *lora, const tsr__lora_module *module);

/* lora.c: Checks params. */
tsr_status tsr__lora_check(const tsr_lora_params *params) TSR_NODISCARD;
/* Creates an adapter without modules, and attaches it to the layers once it has them.
 * Without a seed, A and B have no values yet. */
tsr_status tsr__lora_new(const tsr_lora_params *params, tsr_lora **out) TSR_NODISCARD;
tsr_status tsr__lora_attach(tsr_lora *lora, const uint64_t *seed) TSR_NODISCARD;
/* Freezes the stack's layers, if the adapter is trained and they are not. */
void tsr__lora_freeze(const tsr_lora *lora);

/* config.c */

#define TSR__LORA_PATTERNS 256
/* What adapter_config.json says. */
typedef struct tsr__lora_pattern {
    char *module; /* the end of a module's name */
    double value;
} tsr__lora_pattern;
typedef struct tsr__lora_config {
    int64_t rank;
    double alpha;
    bool rank_stabilised, dora;
    int rank_count, alpha_count;
    tsr__lora_pattern ranks[TSR__LORA_PATTERNS], alphas[TSR__LORA_PATTERNS];
} tsr__lora_config;
/* Reads the file; the caller calls tsr__lora_config_finish afterwards, also after an error. */
tsr_status tsr__lora_config_read(const char *path, tsr__lora_config *out) TSR_NODISCARD;
void tsr__lora_config_finish(tsr__lora_config *config);
/* Returns the value of the first pattern for a module, otherwise `usual`. */
double tsr__lora_pattern_value(const tsr__lora_pattern *patterns, int count, const char *module,
                               double usual);
/* Prints the file, which the caller must free. */
tsr_status tsr__lora_config_print(const tsr_lora *lora, char **text, size_t *length) TSR_NODISCARD;

#endif
