/* tessera generate: its options, and what it prints. */
#ifndef TSR_CLI_GENERATE_GENERATE_H
#define TSR_CLI_GENERATE_GENERATE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "cli/inference/inference.h"

#define GENERATE_MAX_PROMPTS 64
#define GENERATE_MAX_STOPS 16

typedef struct generate_prompt {
    /* Where rank 0 reads the text: the path of a file, or "-" for standard input. NULL: the text or
     * the ids were given. */
    const char *file;
    const char *text; /* [size]; NULL: the prompt was given as ids, or has not been read yet */
    char *read;       /* the text, if it was read */
    size_t size;
    int32_t *ids;
    int64_t count;
} generate_prompt;

typedef struct generate_options {
    generate_prompt prompts[GENERATE_MAX_PROMPTS];
    int prompt_count;
    int64_t logits;
    bool json, ignore_end, stats;
    inference_grammar_files grammar;
    const char *stops[GENERATE_MAX_STOPS];
    int stop_count;
} generate_options;

extern generate_options generate_chosen;
extern const cli_option generate_option_table[];
/* Reads the arguments into generate_chosen. Returns an exit code. */
int generate_options_read(int argc, char **argv);
/* Reads the prompts that are in files or come from standard input on rank 0, for all ranks. Joins
 * the job if there is such a prompt. All ranks must call it. Returns an exit code. */
int generate_read_input(inference_job *job);
void generate_free_input(void);

/* The text of a sequence: the prompt and the generated text. Bytes at the end that later tokens may
 * still change are not in it yet. */
typedef struct generate_text {
    tsr_text_stream *stream; /* NULL: there is no tokenizer */
    char *bytes;             /* NULL: no text yet */
    size_t size, capacity;
    size_t prompt_size;
    size_t printed;
} generate_text;

/* Opens the model's tokenizer and encodes the prompts. *out stays NULL if the model has no
 * tokenizer. This is an error only if an option needs it. */
tsr_status generate_text_open(tsr_tokenizer **out);
/* Begins a text. If the tokenizer is NULL there is no text, and the functions below do nothing. */
tsr_status generate_text_begin(generate_text *text, const tsr_tokenizer *tokenizer);
tsr_status generate_text_add_prompt(generate_text *text, const tsr_tokenizer *tokenizer,
                                    int32_t id);
/* Adds a generated token. Sets *stopped if a string of --stop ends the text. */
tsr_status generate_text_add(generate_text *text, const tsr_tokenizer *tokenizer, int32_t id,
                             bool *stopped);
/* Adds the text that was held back. Call this when no more tokens follow. */
tsr_status generate_text_end(generate_text *text);
void generate_text_finish(generate_text *text);

/* Checks that all ranks have the same strings of --stop. All ranks must call it. If they differ,
 * all ranks get TSR_ERR_INVALID, and the sentence in problem[size] names this rank's strings. */
tsr_status generate_check_stops(tsr_comm *comm, char *problem, size_t size);

/* The results of one sequence. */
typedef struct generate_result {
    int32_t *ids; /* [count]: the ids of the prompt, then the generated ones */
    int64_t count, prompt_count, capacity;
    double *log_probabilities; /* [count − prompt_count] */
    tsr_finish finish;
    bool stopped; /* a string of --stop has ended the text */
    generate_text text;
    float *logits; /* [logit_rows, vocabulary] */
    int64_t logit_rows, logit_capacity;
} generate_result;

void generate_result_add(generate_result *result, const tsr_generated *token);
/* Appends a row of logits: those of the position after the last row. */
void generate_result_add_logits(generate_result *result, int64_t vocabulary, const float *logits);
void generate_result_finish(generate_result *result);

typedef struct generate_summary {
    const tsr_model *model;
    const tsr_device_info *device;
    const tsr_tokenizer *tokenizer; /* NULL: there is no text */
    int ranks;
    tsr_generator_stats stats;
} generate_summary;
/* Prints the JSON document. */
void generate_print_json(const generate_summary *summary, int count,
                         const generate_result *results);
/* Prints the times and speeds of loading, prompts and texts on standard error. */
void generate_print_stats(const generate_summary *summary);
/* Says on standard error which texts have ended because their context was full. */
void generate_note_ends(int64_t context, int count, const generate_result *results);
/* Prints what the last step has added to the sequence: text, or ids if there is no tokenizer. With
 * several sequences, prints nothing until all have ended, and then prints each completely. Returns
 * false if standard output cannot be written. */
bool generate_print_step(const tsr_tokenizer *tokenizer, int count, generate_result *results);

#endif
