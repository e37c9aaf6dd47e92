/* tessera generate: its options, and what it prints. */
#ifndef TSR_CLI_GENERATE_GENERATE_H
#define TSR_CLI_GENERATE_GENERATE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "cli/lib/options.h"
#include "tessera/tessera.h"

#define GENERATE_MAX_PROMPTS 64

typedef struct generate_prompt {
    const char *text; /* NULL: given as ids */
    int32_t *ids;
    int64_t count;
} generate_prompt;

typedef struct generate_options {
    const char *model;
    generate_prompt prompts[GENERATE_MAX_PROMPTS];
    int prompt_count;
    int64_t max_tokens, context, prefill, logits, top_k, seed;
    bool greedy, json, ignore_end;
    double temperature, top_p, min_p, repetition_penalty, timeout;
    tsr_dtype dtype, cache_dtype;
    const char *device;
    double *rates; /* [rate_count] */
    int rate_count;
} generate_options;

extern generate_options generate_chosen;
extern const cli_option generate_option_table[];
/* Reads the arguments into generate_chosen. Returns an exit code. */
int generate_options_read(int argc, char **argv);

/* What a sequence has generated. */
typedef struct generate_result {
    int32_t *ids; /* [count]: prompt and generated */
    int64_t count, prompt_count, capacity;
    double *log_probabilities; /* [count − prompt_count] */
    tsr_finish finish;
    float *logits; /* [logit_rows, vocabulary] */
    int64_t logit_rows, logit_capacity;
} generate_result;

void generate_result_add(generate_result *result, const tsr_generated *token);
/* Keeps the logits of the next position. */
void generate_result_add_logits(generate_result *result, int64_t vocabulary, const float *logits);
void generate_result_finish(generate_result *result);

typedef struct generate_summary {
    const tsr_model *model;
    const tsr_device_info *device;
    int ranks;
    tsr_generator_stats stats;
} generate_summary;
/* Prints the JSON document. */
void generate_print_json(const generate_summary *summary, int count,
                         const generate_result *results);
/* Prints tokens that were generated, in text mode. */
void generate_print_tokens(int prompts, const generate_result *results, int count,
                           const tsr_generated *tokens);

#endif
