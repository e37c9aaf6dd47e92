/* The parts of tessera sample. Each kind lists the options that it takes and creates a sampler from
 * them. Printing the indices is the same for all kinds. */
#ifndef TSR_CLI_SAMPLE_SAMPLE_H
#define TSR_CLI_SAMPLE_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "cli/lib/options.h"
#include "tessera/rng.h"
#include "tessera/sampler.h"

typedef enum sample_format { SAMPLE_TEXT, SAMPLE_JSON, SAMPLE_I64 } sample_format;

/* Options that only some kinds take, as bits. */
enum {
    SAMPLE_RNG = 1u << 0,
    SAMPLE_COUNT = 1u << 1,
    SAMPLE_N = 1u << 2,
    SAMPLE_ORDER = 1u << 3,
    SAMPLE_REPLACEMENT = 1u << 4,
    SAMPLE_NUM_SAMPLES = 1u << 5,
    SAMPLE_RANKS = 1u << 6, /* also stands for --rank */
    SAMPLE_TAIL = 1u << 7,  /* also stands for --split */
    SAMPLE_INDICES = 1u << 8,
    SAMPLE_WEIGHTS = 1u << 9, /* also stands for --float32 */
    SAMPLE_LENGTHS = 1u << 10,
    SAMPLE_LABELS = 1u << 11,
    SAMPLE_DIFFICULTIES = 1u << 12,
    SAMPLE_MAX_EPOCHS = 1u << 13,
    SAMPLE_BATCH = 1u << 14,
    SAMPLE_DROP_LAST = 1u << 15,
    SAMPLE_SAMPLER = 1u << 16,
    SAMPLE_TORCH = 1u << 17,  /* --torch-version */
    SAMPLE_GLOBAL = 1u << 18, /* --global-generator */
    SAMPLE_LOADER = 1u << 19, /* --data-loader */
    SAMPLE_READ = 1u << 20,   /* --epoch, --epochs, --from, --limit */
    SAMPLE_NO_REPLACEMENT = 1u << 21
};

/* The values of the options. An option that was not given is NULL or false, or -1 if it is an
 * integer that cannot be negative. */
typedef struct sample_options {
    int64_t seed;          /* the lower 64 bits */
    int seed_high;         /* the seed is seed + seed_high · 2^64 */
    const char *seed_text; /* the seed as the user has typed it */
    sample_format format;
    const char *rng;
    int64_t count;
    int64_t n, num_samples, batch, max_epochs;
    int64_t ranks, rank;
    bool replacement, no_replacement, drop_last, float32;
    tsr_order order;
    tsr_tail tail;
    tsr_split split;
    tsr_torch_options torch;
    const char *indices, *weights, *lengths, *labels, *difficulties;
    const char *sampler;
    int64_t epoch, epochs, from, limit;
    bool has_epoch;
    unsigned given; /* the options that were given, as SAMPLE_… bits */
} sample_options;

/* The table of all options. The parser stores their values in sample_chosen. */
extern const cli_option sample_option_table[];
extern sample_options sample_chosen;

/* Sets `given`. Call this after the options have been read. */
void sample_options_note(void);
/* Checks the options for the kind `name`: all of `needs` must be given, nothing outside of `takes`
 * may be given, and the values must be compatible. If `adds_epoch` is true, the epoch is added to
 * the seed, so the seed may be below PyTorch's range. Returns CLI_DONE. On error, prints what is
 * wrong and returns CLI_USAGE. */
int sample_options_check(const char *name, unsigned takes, unsigned needs, bool adds_epoch);
/* Checks that the seed is in the range of System.Random. `option` is the option that requires
 * this. */
int sample_check_dotnet_seed(const sample_options *options, const char *option);

typedef struct sample_kind {
    const char *name;
    const char *summary; /* one line */
    const char *help;    /* several lines of text, with newlines */
    unsigned takes, needs;
    /* A kind has either `run` or `create`. `run` prints the complete output and returns an exit
     * code. It prints nothing if it fails. */
    int (*run)(const sample_options *options);
    /* `create` creates the sampler to print and returns an exit code. *sampler is NULL or the
     * sampler to wrap. On success the new sampler owns the wrapped one. */
    int (*create)(const sample_options *options, tsr_sampler **sampler);
} sample_kind;

extern const sample_kind sample_sequential, sample_random, sample_subset, sample_weighted,
    sample_batch, sample_distributed, sample_length_sorted, sample_stratified, sample_curriculum,
    sample_raw;

/* Returns CLI_DONE if the status is TSR_OK. Otherwise prints the library's error, and returns
 * CLI_USAGE for invalid arguments or CLI_FAILED for any other error. */
int sample_checked(tsr_status status);
/* Does the same for a sampler of values from a file: any error is a failure, CLI_FAILED. */
int sample_of_file_checked(tsr_status status);

/* Prints the indices of a sampler that --epoch, --epochs, --from, --limit and --format select. */
/* The largest number of indices in a batch of the sampler; 0 if it gives single indices. */
uint64_t sample_batch_max(const tsr_sampler *sampler);
int sample_print(const char *kind, const sample_options *options, tsr_sampler *sampler);

/* These functions read a file with one number per line; "-" is standard input. Free *values with
 * free(). They return CLI_DONE. On error they set nothing, print the file, the line and what is
 * wrong, and return CLI_USAGE. */
int sample_read_integers(const char *path, int64_t **values, uint64_t *count);
int sample_read_reals(const char *path, double **values, uint64_t *count);

/* Output in the selected format. Text: each line has one number, or the numbers of one batch. JSON:
 * one document that contains lists. i64: 8 bytes per number, little-endian. */
typedef struct sample_output {
    sample_format format;
    bool any;       /* the innermost open list has elements */
    bool any_batch; /* the list of batches has elements */
} sample_output;

sample_output sample_output_start(sample_format format, const char *kind);
/* Adds a member to the JSON document. Does nothing in other formats. */
void sample_output_member(sample_output *output, const char *name, int64_t value);
void sample_output_open(sample_output *output, const char *list);
void sample_output_close(sample_output *output);
void sample_output_value(sample_output *output, int64_t value);
/* Writes a batch. In text, marks the indices whose mask is 0. `mask` may be NULL. */
void sample_output_batch(sample_output *output, const int64_t *values, const uint8_t *mask,
                         uint64_t count);
/* Writes single values, and marks them as sample_output_batch does. */
void sample_output_values(sample_output *output, const int64_t *values, const uint8_t *mask,
                          uint64_t count);
void sample_output_finish(sample_output *output);

#endif
