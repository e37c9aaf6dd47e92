/* The parts of tessera sample. Each kind lists the options it takes and creates a sampler from
 * them; printing its indices is common to all kinds. */
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
    SAMPLE_RANKS = 1u << 6, /* and --rank */
    SAMPLE_TAIL = 1u << 7,  /* and --split */
    SAMPLE_INDICES = 1u << 8,
    SAMPLE_WEIGHTS = 1u << 9, /* and --float32 */
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

/* The values of the options. NULL, false and, for integers that cannot be negative, -1 mean that
 * the option was not given. */
typedef struct sample_options {
    int64_t seed;          /* the lower 64 bits */
    int seed_high;         /* the seed is seed + seed_high · 2^64 */
    const char *seed_text; /* as typed */
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
    unsigned given; /* SAMPLE_… */
} sample_options;

/* The table of all options, and where it stores their values. */
extern const cli_option sample_option_table[];
extern sample_options sample_chosen;

/* Call after reading: sets `given`. */
void sample_options_note(void);
/* Checks that all of `needs` and nothing outside `takes` is given, and that the values are
 * compatible. `name` is the kind. If `adds_epoch`, seeds below PyTorch's range are allowed, since
 * the epoch is added to them. Returns CLI_DONE, or CLI_USAGE after printing what is wrong. */
int sample_options_check(const char *name, unsigned takes, unsigned needs, bool adds_epoch);
/* Checks that the seed is in the range of System.Random, which `option` requires. */
int sample_check_dotnet_seed(const sample_options *options, const char *option);

typedef struct sample_kind {
    const char *name;
    const char *summary; /* one line */
    const char *help;    /* lines of text, with newlines */
    unsigned takes, needs;
    /* Either: prints everything itself, and returns an exit code. Prints nothing if it fails. */
    int (*run)(const sample_options *options);
    /* Or: creates the sampler to print. *sampler is NULL, or the sampler to wrap, which the
     * function takes over on success. Returns an exit code. */
    int (*create)(const sample_options *options, tsr_sampler **sampler);
} sample_kind;

extern const sample_kind sample_sequential, sample_random, sample_subset, sample_weighted,
    sample_batch, sample_distributed, sample_length_sorted, sample_stratified, sample_curriculum,
    sample_raw;

/* Returns CLI_DONE for TSR_OK. Otherwise prints the library's error, and returns CLI_USAGE for
 * invalid arguments and CLI_FAILED for everything else. */
int sample_checked(tsr_status status);

/* Prints the sampler's indices, as selected by --epoch, --epochs, --from, --limit and --format. */
int sample_print(const char *kind, const sample_options *options, tsr_sampler *sampler);

/* Read a file with one number per line; "-" is standard input. Free *values with free(). Return
 * CLI_DONE; or CLI_USAGE after printing the file, the line and what is wrong, with nothing set. */
int sample_read_integers(const char *path, int64_t **values, uint64_t *count);
int sample_read_reals(const char *path, double **values, uint64_t *count);

/* Output in the chosen format. Text: one number, or one batch of numbers, per line. JSON: one
 * document with lists. i64: 8 bytes per number, little-endian. */
typedef struct sample_output {
    sample_format format;
    bool any;       /* the innermost open list is not empty */
    bool any_batch; /* nor is the list of batches around it */
} sample_output;

sample_output sample_output_start(sample_format format, const char *kind);
/* Adds a member to the JSON document; does nothing in other formats. */
void sample_output_member(sample_output *output, const char *name, int64_t value);
void sample_output_open(sample_output *output, const char *list);
void sample_output_close(sample_output *output);
void sample_output_value(sample_output *output, int64_t value);
/* Writes a batch. In text, indices whose mask is 0 are marked; `mask` may be NULL. */
void sample_output_batch(sample_output *output, const int64_t *values, const uint8_t *mask,
                         uint64_t count);
/* Writes single values, marked in the same way. */
void sample_output_values(sample_output *output, const int64_t *values, const uint8_t *mask,
                          uint64_t count);
void sample_output_finish(sample_output *output);

#endif
