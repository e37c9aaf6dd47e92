/* tessera sample: a kind lists the options it takes, and makes a sampler of them; printing what
 * that gives is the same for all. */
#ifndef TSR_CLI_SAMPLE_H
#define TSR_CLI_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "cli/options.h"
#include "tessera/rng.h"
#include "tessera/sampler.h"

typedef enum sample_format { SAMPLE_TEXT, SAMPLE_JSON, SAMPLE_I64 } sample_format;

/* Options that only some kinds take. */
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

/* What was given. NULL, false and, for integers that are not negative, -1 stand for "not given". */
typedef struct sample_options {
    int64_t seed;          /* the lower 64 bits */
    int seed_high;         /* the seed is seed + seed_high · 2^64 */
    const char *seed_text; /* as it was given */
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

/* The table of all options, and what has been read by it. */
extern const cli_option sample_option_table[];
extern sample_options sample_chosen;

/* After reading: works out `given`. */
void sample_options_note(void);
/* That all of `needs` and nothing but `takes` is given, and that it goes together. `name` is the
 * kind. Only where the epoch is added to the seed may that lie below PyTorch's. CLI_DONE, or
 * CLI_USAGE with the reason printed. */
int sample_options_check(const char *name, unsigned takes, unsigned needs, bool adds_epoch);
/* That the seed is one of System.Random's, which `option` asked for. As above. */
int sample_check_dotnet_seed(const sample_options *options, const char *option);

typedef struct sample_kind {
    const char *name;
    const char *summary; /* one line */
    const char *help;    /* lines of text, with newlines */
    unsigned takes, needs;
    /* Prints by itself: returns an exit code, the reason for another than CLI_DONE having been
     * said. Output starts when nothing can go wrong any more. */
    int (*run)(const sample_options *options);
    /* Or makes a sampler, to be printed. *sampler is NULL, or one to be shared out, which is the
     * function's on success. Returns an exit code, as above. */
    int (*create)(const sample_options *options, tsr_sampler **sampler);
} sample_kind;

extern const sample_kind sample_sequential, sample_random, sample_subset, sample_weighted,
    sample_batch, sample_distributed, sample_length_sorted, sample_stratified, sample_curriculum,
    sample_raw;

/* CLI_DONE for TSR_OK. Otherwise prints the library's reason: CLI_USAGE for what is wrong with the
 * arguments, CLI_FAILED for everything else. */
int sample_checked(tsr_status status);

/* Prints what a sampler gives, by --epoch, --epochs, --from, --limit and --format. */
int sample_print(const char *kind, const sample_options *options, tsr_sampler *sampler);

/* The numbers of a file, one a line, "-" being standard input; for free(). CLI_DONE, or CLI_USAGE
 * with the file, line and reason printed and nothing set. */
int sample_read_integers(const char *path, int64_t **values, uint64_t *count);
int sample_read_reals(const char *path, double **values, uint64_t *count);

/* Output in the chosen format. Text: one number, or one batch of them, a line. JSON: one document
 * with lists. i64: 8 bytes each, little-endian. */
typedef struct sample_output {
    sample_format format;
    bool any;       /* something is in the innermost list that is open */
    bool any_batch; /* or in the list of batches around it */
} sample_output;

sample_output sample_output_start(sample_format format, const char *kind);
/* A member of the JSON document; nothing in other formats. */
void sample_output_member(sample_output *output, const char *name, int64_t value);
void sample_output_open(sample_output *output, const char *list);
void sample_output_close(sample_output *output);
void sample_output_value(sample_output *output, int64_t value);
/* A batch, where `mask` is not NULL with those marked in text that do not count. */
void sample_output_batch(sample_output *output, const int64_t *values, const uint8_t *mask,
                         uint64_t count);
/* Single values, each as sample_output_value, marked as above. */
void sample_output_values(sample_output *output, const int64_t *values, const uint8_t *mask,
                          uint64_t count);
void sample_output_finish(sample_output *output);

#endif
