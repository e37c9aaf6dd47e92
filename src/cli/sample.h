/* tessera sample: each kind is one file, and lists the options it takes. */
#ifndef TSR_CLI_SAMPLE_H
#define TSR_CLI_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tessera/rng.h"

typedef enum sample_format { SAMPLE_TEXT, SAMPLE_JSON, SAMPLE_I64 } sample_format;

/* Which options a kind takes; --seed and --format belong to all. */
enum { SAMPLE_RNG = 1u << 0, SAMPLE_COUNT = 1u << 1 };

/* What was given. NULL, false and -1 stand for "not given". */
typedef struct sample_options {
    uint64_t seed; /* negative ones in two's complement */
    sample_format format;
    const char *rng;
    int64_t count;
} sample_options;

typedef struct sample_kind {
    const char *name;
    const char *summary; /* one line */
    const char *help;    /* lines of text, with newlines */
    unsigned takes;      /* SAMPLE_… */
    /* Returns an exit code, the reason for another than CLI_DONE having been said. Output starts
     * when nothing can go wrong any more. */
    int (*run)(const sample_options *options);
} sample_kind;

extern const sample_kind sample_raw;

/* The numbers of a file, one a line, "-" being standard input; for free(). CLI_DONE, or CLI_USAGE
 * with the file, line and reason printed and nothing set. */
int sample_read_integers(const char *path, int64_t **values, uint64_t *count);
int sample_read_reals(const char *path, double **values, uint64_t *count);

/* Output in the chosen format. Text: one number a line. JSON: one document with the list `member`.
 * i64: 8 bytes each, little-endian. */
typedef struct sample_output {
    sample_format format;
    bool any; /* something is in the list that is open */
} sample_output;

sample_output sample_output_start(sample_format format, const char *kind, const char *member);
void sample_output_value(sample_output *output, int64_t value);
void sample_output_finish(sample_output *output);

#endif
