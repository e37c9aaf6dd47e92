/* The options that describe a model, its text and its training: as the command line gives
 * them, and as a checkpoint has saved them for --load. */
#ifndef GPT_GIVEN_H
#define GPT_GIVEN_H

#include "config.h"

struct json_t;

/* Sizes of the model and the dtype are 0, other numbers −1, and strings NULL if they are not given.
 */
typedef struct gpt_given {
    int style; /* a gpt_style, or −1 */
    bool bias;
    int dtype; /* a tsr_dtype, or 0 */
    int layers, heads, kv_heads, width, inner, block;
    int experts, experts_used;
    double balance, bias_rate;
    int batch, accumulate, steps, warmup, decay;
    double learning_rate, min_learning_rate, weight_decay, clip, dropout;
    bool is_seed_given;
    int64_t seed;
    const char *model, *config, *offsets;
    const char *text, *tokenizer, *separator;
} gpt_given;

/* One of these options. */
typedef struct gpt_given_option gpt_given_option;

gpt_given gpt_given_none(void);

/* Finds an option by its name without hyphens. NULL: this option does not describe a training. */
const gpt_given_option *gpt_given_find(const char *name);

/* Reads the value of an option. `value` must outlive `out`; it is NULL for an option without one.
 * Returns false, with a message on standard error, if the value is wrong. */
bool gpt_given_parse(const gpt_given_option *option, const char *value, gpt_given *out);

/* What an option describes. */
typedef enum gpt_given_topic {
    GPT_GIVEN_SHAPE, /* the model: sizes, style, dtype */
    GPT_GIVEN_FILES, /* the files that describe the model: --model, --config */
    GPT_GIVEN_TOKENS,
    GPT_GIVEN_TRAINING
} gpt_given_topic;

/* Sets the options of a topic that `to` lacks to those of `from`. */
void gpt_given_add(gpt_given *to, const gpt_given *from, gpt_given_topic topic);

/* Checks that the options of a model's shape in `given` have the values that they have in `saved`,
 * which come from the checkpoint `path`. Otherwise returns false, with both values in `error`. */
bool gpt_given_agree(const gpt_given *given, const gpt_given *saved, const char *path, char *error,
                     size_t error_size);

/* Prints all given options as a JSON object of strings, in memory of malloc. Returns NULL, with a
 * sentence in `error`, if there is no memory or a path is not UTF-8. */
char *gpt_given_print(const gpt_given *given, char *error, size_t error_size);

/* Reads what gpt_given_print() has printed. The strings in `out` belong to *owner, which the caller
 * must free with gpt_given_free(). Returns false, with a sentence in `error`, if `text` is
 * something else. */
bool gpt_given_read(const char *text, gpt_given *out, struct json_t **owner, char *error,
                    size_t error_size);
void gpt_given_free(struct json_t **owner);

#endif
