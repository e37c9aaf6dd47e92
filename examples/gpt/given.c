#include "given.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/common.h"

#define PROGRAM "gpt"
#define MAX_WIDTH (1 << 20)
#define MAX_NUMBER 32 /* bytes of a printed number */

typedef enum value_kind {
    SIZE,   /* int, 0: not given */
    COUNT,  /* int, −1: not given */
    NUMBER, /* double, −1: not given */
    STRING, /* const char *, NULL: not given */
    FLAG,   /* bool */
    STYLE,  /* int */
    DTYPE,  /* int */
    SEED    /* `seed` and `is_seed_given` */
} value_kind;

struct gpt_given_option {
    const char *name;
    gpt_given_topic topic;
    value_kind kind;
    size_t offset;
    int least, most; /* of SIZE and COUNT */
};

#define AT(member) offsetof(gpt_given, member)

static const gpt_given_option options[] = {
    {"accumulate", GPT_GIVEN_TRAINING, COUNT, AT(accumulate), 1, 1 << 12},
    {"balance", GPT_GIVEN_TRAINING, NUMBER, AT(balance), 0, 0},
    {"batch", GPT_GIVEN_TRAINING, COUNT, AT(batch), 1, 1 << 16},
    {"bias", GPT_GIVEN_SHAPE, FLAG, AT(bias), 0, 0},
    {"bias-rate", GPT_GIVEN_TRAINING, NUMBER, AT(bias_rate), 0, 0},
    {"block", GPT_GIVEN_SHAPE, SIZE, AT(block), 1, MAX_WIDTH},
    {"clip", GPT_GIVEN_TRAINING, NUMBER, AT(clip), 0, 0},
    {"config", GPT_GIVEN_FILES, STRING, AT(config), 0, 0},
    {"decay", GPT_GIVEN_TRAINING, COUNT, AT(decay), 0, 1 << 30},
    {"dropout", GPT_GIVEN_TRAINING, NUMBER, AT(dropout), 0, 0},
    {"dtype", GPT_GIVEN_SHAPE, DTYPE, AT(dtype), 0, 0},
    {"experts", GPT_GIVEN_SHAPE, SIZE, AT(experts), 1, 1024},
    {"experts-used", GPT_GIVEN_SHAPE, SIZE, AT(experts_used), 1, 32},
    {"heads", GPT_GIVEN_SHAPE, SIZE, AT(heads), 1, 4096},
    {"inner", GPT_GIVEN_SHAPE, SIZE, AT(inner), 1, MAX_WIDTH},
    {"kv-heads", GPT_GIVEN_SHAPE, SIZE, AT(kv_heads), 1, 4096},
    {"layers", GPT_GIVEN_SHAPE, SIZE, AT(layers), 1, 1000},
    {"learning-rate", GPT_GIVEN_TRAINING, NUMBER, AT(learning_rate), 0, 0},
    {"min-learning-rate", GPT_GIVEN_TRAINING, NUMBER, AT(min_learning_rate), 0, 0},
    {"model", GPT_GIVEN_FILES, STRING, AT(model), 0, 0},
    {"offsets", GPT_GIVEN_TRAINING, STRING, AT(offsets), 0, 0},
    {"seed", GPT_GIVEN_TRAINING, SEED, AT(seed), 0, 0},
    {"separator", GPT_GIVEN_TOKENS, STRING, AT(separator), 0, 0},
    {"steps", GPT_GIVEN_TRAINING, COUNT, AT(steps), 0, 1 << 30},
    {"style", GPT_GIVEN_SHAPE, STYLE, AT(style), 0, 0},
    {"text", GPT_GIVEN_TOKENS, STRING, AT(text), 0, 0},
    {"tokenizer", GPT_GIVEN_TOKENS, STRING, AT(tokenizer), 0, 0},
    {"warmup", GPT_GIVEN_TRAINING, COUNT, AT(warmup), 0, 1 << 30},
    {"weight-decay", GPT_GIVEN_TRAINING, NUMBER, AT(weight_decay), 0, 0},
    {"width", GPT_GIVEN_SHAPE, SIZE, AT(width), 1, MAX_WIDTH},
};
#define OPTION_COUNT (sizeof options / sizeof *options)

gpt_given gpt_given_none(void)
{
    return (gpt_given){.style = -1,
                       .batch = -1,
                       .accumulate = -1,
                       .steps = -1,
                       .warmup = -1,
                       .decay = -1,
                       .learning_rate = -1,
                       .min_learning_rate = -1,
                       .weight_decay = -1,
                       .clip = -1,
                       .dropout = -1,
                       .balance = -1,
                       .bias_rate = -1};
}

const gpt_given_option *gpt_given_find(const char *name)
{
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (strcmp(options[i].name, name) == 0)
            return &options[i];
    return NULL;
}

static bool parse_style(const char *text, int *out)
{
    for (gpt_style s = GPT_STYLE_GPT2; s <= GPT_STYLE_LLAMA; s++) {
        if (strcmp(text, gpt_style_name(s)) == 0) {
            *out = (int)s;
            return true;
        }
    }
    return wrong_option(PROGRAM, "--style takes gpt2 or llama, not ", text);
}

bool gpt_given_parse(const gpt_given_option *option, const char *value, gpt_given *out)
{
    char *member = (char *)out + option->offset;
    tsr_dtype dtype;
    switch (option->kind) {
    case SIZE:
    case COUNT:
        return parse_int(PROGRAM, option->name, value, option->least, option->most,
                         (int *)(void *)member);
    case NUMBER:
        return parse_number(PROGRAM, option->name, value, 0, (double *)(void *)member);
    case STRING:
        *(const char **)(void *)member = value;
        return true;
    case FLAG:
        *(bool *)(void *)member = true;
        return true;
    case STYLE:
        return parse_style(value, &out->style);
    case DTYPE:
        if (!parse_dtype(PROGRAM, value, &dtype))
            return false;
        out->dtype = (int)dtype;
        return true;
    case SEED:
        out->is_seed_given = parse_seed(PROGRAM, value, &out->seed);
        return out->is_seed_given;
    }
    return false;
}

/* Returns the value of an option as a string, which may be in `number`, or NULL if the option is
 * not given. A flag that is given has the value "". */
static const char *print_value(const gpt_given_option *option, const gpt_given *given,
                               char number[MAX_NUMBER])
{
    const char *member = (const char *)given + option->offset;
    switch (option->kind) {
    case SIZE:
    case COUNT: {
        const int value = *(const int *)(const void *)member;
        snprintf(number, MAX_NUMBER, "%d", value);
        return value != (option->kind == SIZE ? 0 : -1) ? number : NULL;
    }
    case NUMBER: {
        const double value = *(const double *)(const void *)member;
        snprintf(number, MAX_NUMBER, "%.17g", value);
        return value >= 0 ? number : NULL;
    }
    case STRING:
        return *(const char *const *)(const void *)member;
    case FLAG:
        return *(const bool *)(const void *)member ? "" : NULL;
    case STYLE:
        return given->style >= 0 ? gpt_style_name((gpt_style)given->style) : NULL;
    case DTYPE:
        return given->dtype ? tsr_dtype_name((tsr_dtype)given->dtype) : NULL;
    case SEED:
        snprintf(number, MAX_NUMBER, "%" PRId64, given->seed);
        return given->is_seed_given ? number : NULL;
    }
    return NULL;
}

void gpt_given_add(gpt_given *to, const gpt_given *from, gpt_given_topic topic)
{
    char number[MAX_NUMBER];
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const gpt_given_option *option = &options[i];
        if (option->topic != topic || print_value(option, to, number))
            continue;
        const char *value = print_value(option, from, number);
        if (value)
            (void)gpt_given_parse(option, value, to);
    }
}

bool gpt_given_agree(const gpt_given *given, const gpt_given *saved, const char *path, char *error,
                     size_t error_size)
{
    char given_number[MAX_NUMBER], saved_number[MAX_NUMBER];
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const gpt_given_option *option = &options[i];
        const char *value = print_value(option, given, given_number);
        const char *other = print_value(option, saved, saved_number);
        if (option->topic != GPT_GIVEN_SHAPE || !value || (other && strcmp(value, other) == 0))
            continue;
        if (other)
            snprintf(error, error_size, "--%s %s, but the model of %s has --%s %s", option->name,
                     value, path, option->name, other);
        else
            snprintf(error, error_size, "--%s, but the model of %s has no --%s", option->name, path,
                     option->name);
        return false;
    }
    return true;
}

char *gpt_given_print(const gpt_given *given, char *error, size_t error_size)
{
    char number[MAX_NUMBER], *text;
    json_t *root = json_object();
    for (size_t i = 0; root && i < OPTION_COUNT; i++) {
        const char *value = print_value(&options[i], given, number);
        if (value && json_object_set_new(root, options[i].name, json_string(value)) != 0) {
            snprintf(error, error_size, "--%s %s is not UTF-8, so a checkpoint cannot hold it",
                     options[i].name, value);
            json_decref(root);
            return NULL;
        }
    }
    text = root ? json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    if (!text)
        snprintf(error, error_size, "out of memory");
    json_decref(root);
    return text;
}

bool gpt_given_read(const char *text, gpt_given *out, struct json_t **owner, char *error,
                    size_t error_size)
{
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL), *value;
    const char *name;
    *out = gpt_given_none();
    *owner = root;
    bool good = json_is_object(root);
    json_object_foreach(root, name, value)
    {
        const gpt_given_option *option = gpt_given_find(name);
        good = good && option && json_is_string(value) &&
               gpt_given_parse(option, json_string_value(value), out);
    }
    if (!good)
        snprintf(error, error_size, "its options are damaged: %.200s", text);
    return good;
}

void gpt_given_free(struct json_t **owner)
{
    json_decref(*owner);
    *owner = NULL;
}
