/* Reading a model's configuration, and the memory that holds one.
 *
 *     facts.c         the values that files have, while they are read
 *     json.c, json_parts.c, gguf.c  read them
 *     config.c        a configuration from these values
 *     copy.c          a configuration of the caller
 *     layers.c        finds layers by what they have
 *     experts.c, delta_net.c, short_conv.c, latent.c, rope.c  values and checks of these parts */
#ifndef TSR_MODEL_CONFIG_CONFIG_H
#define TSR_MODEL_CONFIG_CONFIG_H

#include "model/families/family.h"
#include "model/weights/files.h"

/* Stands for a value that the model's files do not give. */
#define TSR__UNSET (-1)

#define TSR__MOST_PAIRS (TSR_MAX_HEAD_DIM / 2)
#define TSR__USUAL_TAPS 4 /* of the convolutions of delta nets */

/* The frequency scaling of rotary positions, with the names and numbers that files have. */
typedef struct tsr__rope_facts {
    char type[32]; /* "": none */
    double theta, factor, original_length;
    double low_frequency_factor, high_frequency_factor;
    double beta_fast, beta_slow;
    double attention_factor, mscale, mscale_all_dim;
    double partial; /* the fraction of the components that is rotated */
    int truncate;
    /* LongRoPE: the divisors of the frequencies, up to the original length and beyond it */
    int short_count, long_count;
    float short_divisors[TSR__MOST_PAIRS], long_divisors[TSR__MOST_PAIRS];
} tsr__rope_facts;

/* What a file says about each layer, such as whether it has a window: entries of 0 or 1. */
typedef struct tsr__layer_facts {
    int count; /* 0: the file does not say */
    uint8_t values[TSR_MODEL_MAX_LAYERS];
} tsr__layer_facts;

/* Sizes of each layer. */
typedef struct tsr__layer_sizes {
    int count; /* 0: the file does not say */
    int64_t values[TSR_MODEL_MAX_LAYERS];
} tsr__layer_sizes;

/* What a file says about experts. */
typedef struct tsr__expert_facts {
    int64_t count, used, hidden, groups, groups_used;
    int64_t shared_hidden, shared_count; /* the second in units of `hidden` */
    int64_t first_dense, period; /* the first layers, and all but each period-th, have no experts */
    int64_t gating;              /* a tsr_gating */
    double scale, limit;
    int normalise, choice_bias, enabled;
    bool groups_by_largest; /* groups are chosen by their largest score, not the sum of two */
    tsr__layer_facts dense; /* whether layers have no experts, whatever the rest says */
} tsr__expert_facts;

/* What a file says about gated delta nets. */
typedef struct tsr__delta_facts {
    int64_t key_heads, heads, key_dim, value_dim, taps;
    int64_t inner;          /* heads · value_dim, which GGUF files have instead of value_dim */
    int64_t period;         /* layers period − 1, 2 · period − 1, … have attention */
    tsr__layer_facts which; /* whether layers have a delta net, whatever the rest says */
} tsr__delta_facts;

/* What a file says about short convolutions, and about the size of the MLPs beside them. */
typedef struct tsr__conv_facts {
    int64_t taps, features;
    tsr__layer_facts which; /* whether layers have one */
    bool lists_attention;   /* the file has a list of the layers with attention instead: */
    tsr__layer_facts attention;
    int64_t hidden, multiple; /* as in tsr__facts_adjust_hidden */
    double factor;
    int adjusts;
} tsr__conv_facts;

/* What a file says about latent attention. */
typedef struct tsr__latent_facts {
    int64_t q_rank, kv_rank, nope, rope, value;
    int64_t head; /* nope + rope, which GGUF files have */
} tsr__latent_facts;

/* The values of a file before they are checked. TSR__UNSET: the file does not have the value; truth
 * values are 0 or 1. */
typedef struct tsr__facts {
    const tsr__family *family;
    const char *file; /* the name of the file in error texts */
    int64_t layers, width, heads, kv_heads, head_dim, value_dim, hidden, vocabulary, context;
    int64_t window, max_window_layers, rotary_dim;
    double norm_epsilon;
    int use_window, tied, norm_bias, qkv_bias, output_bias, mlp_bias;
    bool has_activation;
    tsr_activation activation;
    tsr__rope_facts rope;
    double window_theta; /* the base of rotary positions in layers with a window */
    int64_t window_period, no_rope_period;
    tsr__layer_facts windows, ropes; /* whether layers have a window, and rotary positions */
    double query_scalar, attention_scale, attention_softcap;
    double temperature, temperature_length; /* of scores, which grows with the position */
    double embedding_scale, residual_scale, logit_divisor, logit_softcap;
    int qk_norm; /* whether q and k have norms */
    /* Families with sizes_by_layers: sizes of layers without a window, if they differ; the number
     * of the last layers that share keys; whether their MLPs have twice the size; whether values
     * are keys, in layers without a window or in those of the list; and config.json's size of
     * layers' own inputs. */
    int64_t full_head_dim, full_kv_heads, shared_layers, layer_input;
    int double_wide, keys_as_values;
    tsr__layer_facts no_values;
    tsr__layer_sizes hidden_sizes, kv_sizes;
    tsr__expert_facts experts;
    tsr__delta_facts delta;
    tsr__conv_facts conv;
    tsr__latent_facts latent;
    int output_gate;
    int64_t next_layers; /* layers that predict further tokens */
    int64_t bos;
    int end_count;
    int32_t end[TSR_MODEL_MAX_END_TOKENS];
} tsr__facts;

/* A key of GGUF files that only this library writes. Its value is "gelu" if the model has the exact
 * GELU, but the family's own activation is the approximation with tanh. */
#define TSR__GGUF_ACTIVATION "tessera.activation"

/* The same: true if YaRN has exact_range (rope.h). */
#define TSR__GGUF_EXACT_RANGE "tessera.rope.exact_range"

void tsr__facts_init(tsr__facts *facts);
/* Appends a token that ends a text, unless it is there already. Ignores ids that do not fit an i32,
 * and all further ids when there are TSR_MODEL_MAX_END_TOKENS. */
void tsr__facts_add_end(tsr__facts *facts, int64_t id);

/* Read the values of config.json (json.c) or of a GGUF file (gguf.c). */
tsr_status tsr__facts_read_json(const tsr__model_files *files, tsr__facts *out) TSR_NODISCARD;
tsr_status tsr__facts_read_gguf(const tsr__model_files *files, tsr__facts *out) TSR_NODISCARD;

/* A configuration with the memory that its pointers point to. It must not be copied by value. */
typedef struct tsr__config {
    tsr_model_config public;
    tsr_model_layer kinds[TSR_MODEL_MAX_LAYER_KINDS];
    tsr_model_experts experts[TSR_MODEL_MAX_LAYER_KINDS];            /* to which kinds point */
    tsr_model_delta_net delta_nets[TSR_MODEL_MAX_LAYER_KINDS];       /* the same */
    tsr_model_latent latents[TSR_MODEL_MAX_LAYER_KINDS];             /* the same */
    const tsr_model_layer *kind_pointers[TSR_MODEL_MAX_LAYER_KINDS]; /* to kinds */
    /* what `rope` and `long_rope` of the kinds point to, and the divisors of these */
    tsr_rope_params ropes[2 * TSR_MODEL_MAX_LAYER_KINDS];
    float divisors[2 * TSR_MODEL_MAX_LAYER_KINDS][TSR__MOST_PAIRS];
    uint16_t layer_kinds[TSR_MODEL_MAX_LAYERS];
} tsr__config;

/* Checks the values, completes those that are missing, and makes a configuration, which the caller
 * must free with tsr__free. */
tsr_status tsr__config_make(const tsr__facts *facts, tsr__config **out) TSR_NODISCARD;
/* Checks a configuration of the caller, of any struct_size, and copies it. The caller must free the
 * copy with tsr__free. */
tsr_status tsr__config_copy(const tsr_model_config *config, tsr__config **out) TSR_NODISCARD;
/* Reads the configuration of opened files. The caller must free it with tsr__free. */
tsr_status tsr__config_read(const tsr__model_files *files, tsr__config **out) TSR_NODISCARD;

/* Allocates an empty configuration, whose pointers point to its own memory. NULL: out of memory. */
tsr__config *tsr__config_create(void);
/* Checks that a layer that shares keys finds those of an earlier layer. */
tsr_status tsr__config_check_shared(const char *where, const tsr_model_config *c,
                                    int i) TSR_NODISCARD;

/* layers.c */

/* Returns the description of a layer, also of one that predicts further tokens, or NULL if there is
 * no such layer. */
const tsr_model_layer *tsr__config_layer(const tsr_model_config *config, int layer);
/* Returns the index in `kinds` of the kind of such a layer. The layer must exist. */
int tsr__config_kind(const tsr_model_config *config, int layer);
/* Returns whether a layer is one of those that predict further tokens. */
bool tsr__config_is_next(const tsr_model_config *config, int layer);
/* Returns whether a layer has a state in place of attention. */
bool tsr__layer_has_state(const tsr_model_layer *layer);
/* Returns whether any layer has one. */
bool tsr__config_has_states(const tsr_model_config *config);
/* Returns the first layer with attention, or NULL. */
const tsr_model_layer *tsr__config_attention_layer(const tsr_model_config *config);
/* The same, or layer 0 if there is none. */
const tsr_model_layer *tsr__config_usual_layer(const tsr_model_config *config);
/* Returns the description of the first layer with a delta net, or NULL, and sets *first to its
 * number. */
const tsr_model_delta_net *tsr__config_delta_net(const tsr_model_config *config, int *first);
/* Returns how many layers, from the first on, have no experts. */
int tsr__config_first_experts(const tsr_model_config *config);
/* Returns the number of layers with experts. */
int tsr__config_expert_layers(const tsr_model_config *config);
/* Returns whether the experts of a layer are in the host's memory if those of `count` layers are.
 */
bool tsr__config_host_experts(const tsr_model_config *config, int layer, int count);
/* Returns the description of the first layer with experts, or NULL. */
const tsr_model_experts *tsr__config_experts(const tsr_model_config *config);
/* Returns the first layer with rotary positions as those of layers without a window are; the first
 * layer with rotary positions if there is none; or layer 0. */
const tsr_model_layer *tsr__config_rotary_layer(const tsr_model_config *config);
/* Returns the first layer that has a sliding window, or −1, and sets *window to the window. */
int tsr__config_window(const tsr_model_config *config, int64_t *window);

/* Returns the first layer with a window, or layer 0. */
const tsr_model_layer *tsr__config_window_layer(const tsr_model_config *config);
/* Returns the first layer without a window, or layer 0. */
const tsr_model_layer *tsr__config_full_layer(const tsr_model_config *config);
/* Returns the layer whose keys a layer uses: itself, unless it has shared_keys; −1: none. */
int tsr__config_keys_layer(const tsr_model_config *config, int layer);
/* Returns how many of the last layers share the keys of others. */
int tsr__config_shared_layers(const tsr_model_config *config);

/* experts.c: tsr__config_take_experts describes the experts of a file of a model with `layers`
 * layers, and checks them. */
tsr_status tsr__config_take_experts(const tsr__facts *facts, int layers,
                                    tsr_model_experts *out) TSR_NODISCARD;
/* Returns whether the model of a file has experts. */
bool tsr__has_experts(const tsr__facts *facts);
bool tsr__layer_has_experts(const tsr__facts *facts, int layer);
bool tsr__any_layer_is_dense(const tsr__facts *facts, int layers);
/* Checks the numbers of a description. `where` begins the error text. */
tsr_status tsr__experts_check(const char *where, const tsr_model_experts *experts) TSR_NODISCARD;

/* Removes the biases for the choice of experts. Returns whether there were any. */
bool tsr__config_clear_choice_biases(tsr__config *config);

/* delta_net.c: tsr__config_take_delta_net describes the delta nets of a file, and checks them. */
tsr_status tsr__config_take_delta_net(const tsr__facts *facts,
                                      tsr_model_delta_net *out) TSR_NODISCARD;
bool tsr__layer_has_delta_net(const tsr__facts *facts, int layer);
/* Checks a layer with a delta net. `where` begins the error text. */
tsr_status tsr__delta_net_check(const char *where, const tsr_model_delta_net *net) TSR_NODISCARD;
/* Checks that nothing in the description of a layer with a state is about attention. */
tsr_status tsr__state_layer_check(const char *where, const tsr_model_layer *layer) TSR_NODISCARD;
/* Removes what describes attention. */
void tsr__layer_without_attention(tsr_model_layer *layer);

/* short_conv.c: tsr__config_take_short_conv gives the taps of the short convolutions of a file of a
 * model of this width, and checks them. */
tsr_status tsr__config_take_short_conv(const tsr__facts *facts, int64_t width,
                                       int *taps) TSR_NODISCARD;
bool tsr__layer_has_short_conv(const tsr__facts *facts, int layer);
tsr_status tsr__conv_taps_check(const char *where, int64_t taps) TSR_NODISCARD;
/* Complete the values of a config.json: which layers have a short convolution, from the list of
 * those with attention; and the size of MLPs. */
void tsr__facts_take_attention_layers(tsr__facts *facts);
tsr_status tsr__facts_adjust_hidden(tsr__facts *facts) TSR_NODISCARD;

/* latent.c: tsr__config_take_latent describes the latent attention of a file, and checks it. */
tsr_status tsr__config_take_latent(const tsr__facts *facts, tsr_model_latent *out) TSR_NODISCARD;
/* Checks a layer with latent attention. `where` begins the error text. */
tsr_status tsr__latent_check(const char *where, const tsr_model_layer *layer) TSR_NODISCARD;

/* rope.c: makes the parameters of rotary positions from the values, and checks them. With
 * LongRoPE, *out are those up to the original length, and *beyond those for longer contexts;
 * otherwise beyond->rotary_dim becomes 0. The divisors belong to `facts`. */
tsr_status tsr__rope_make(const tsr__facts *facts, int64_t head_dim, int64_t context,
                          tsr_rope_params *out, tsr_rope_params *beyond) TSR_NODISCARD;
/* Makes the divisors of proportional rotary positions, which rotate the first pairs of whole heads.
 */
tsr_status tsr__rope_take_proportional(tsr__facts *facts) TSR_NODISCARD;
/* Returns how many pairs proportional rotary positions rotate; 0 for others. */
int64_t tsr__rope_proportional(const tsr_rope_params *rope);
/* Finds them from the divisors of a GGUF file. */
tsr_status tsr__rope_from_proportional(const char *file, int64_t count, const float *divisors,
                                       tsr__rope_facts *rope) TSR_NODISCARD;
/* Returns the factor by which LongRoPE multiplies rotated components, if a file names none. */
double tsr__long_attention(double context, double original_length);
/* Returns the factor by which YaRN multiplies rotated components, if a file names none. */
double tsr__yarn_attention(double factor);
/* Returns the factor by which latent attention multiplies scores for YaRN: the square of its factor
 * with mscale_all_dim. */
double tsr__yarn_score_factor(const tsr__facts *facts);
/* Returns the mscale_all_dim that gives a layer's factor of scores; 0: none. */
double tsr__yarn_score_scale(const tsr_model_layer *layer);
/* Returns the number by which the scaling of Llama 3 divides the frequency of pair i. */
double tsr__llama3_divisor(const tsr_rope_params *rope, int64_t i);
/* Finds the parameters of Llama 3's scaling that give factors[count], the numbers by which a GGUF
 * file divides frequencies. */
tsr_status tsr__rope_from_factors(const char *file, double theta, int64_t count,
                                  const float *factors, tsr__rope_facts *rope) TSR_NODISCARD;

#endif
