/* Members of JSON that anybody may have written: each is what it should be, or there is a sentence
 * that says what is wrong with the first that is not. Reading goes on with something harmless. */
#ifndef TSR_BENCH_REPORT_FIELDS_H
#define TSR_BENCH_REPORT_FIELDS_H

#include <jansson.h>
#include <stdbool.h>

#include "cli/lib/say.h"

/* More than any run has; what is far beyond was not written by us. */
#define BENCH_MOST_FIELDS 100000

/* Where reading is, and what went wrong first. */
typedef struct bench_fields {
    char where[64]; /* "results[7]" */
    char problem[512];
    bool failed;
} bench_fields;

void bench_field_fail(bench_fields *in, const char *format, ...) CLI_PRINTF(2, 3);

const json_t *bench_field(bench_fields *in, const json_t *object, const char *name);
const char *bench_field_text(bench_fields *in, const json_t *object, const char *name);
bool bench_field_bool(bench_fields *in, const json_t *object, const char *name);
/* Finite, and not below `low`. */
double bench_field_number(bench_fields *in, const json_t *object, const char *name, double low);
double bench_field_whole(bench_fields *in, const json_t *object, const char *name, double low);
/* Above 0, finite, and not so small that it has lost digits: fit to be divided by. */
double bench_field_positive(bench_fields *in, const json_t *object, const char *name);
/* An object, or NULL for null where that is allowed. */
const json_t *bench_field_object(bench_fields *in, const json_t *object, const char *name,
                                 bool or_null);
const json_t *bench_field_array(bench_fields *in, const json_t *object, const char *name);
/* A place among `count`, or -1 for null. */
int bench_field_place(bench_fields *in, const json_t *object, const char *name, int count);

#endif
