/* Reads the members of JSON objects from a file that is not trusted, and checks each. The first
 * error is recorded as a sentence. After an error, the functions return harmless values, so that
 * the caller can continue. */
#ifndef TSR_BENCH_REPORT_FIELDS_H
#define TSR_BENCH_REPORT_FIELDS_H

#include <jansson.h>
#include <stdbool.h>

#include "cli/lib/say.h"

/* The largest number of entries of an array. No real run has as many; files
 * with more are refused. */
#define BENCH_MAX_FIELDS 100000

/* The state of reading: which object is being read, and the first error. */
typedef struct bench_fields {
    char where[64]; /* for example "results[7]" */
    char problem[512];
    bool failed;
} bench_fields;

void bench_field_fail(bench_fields *in, const char *format, ...) CLI_PRINTF(2, 3);

const json_t *bench_field(bench_fields *in, const json_t *object, const char *name);
const char *bench_field_text(bench_fields *in, const json_t *object, const char *name);
bool bench_field_bool(bench_fields *in, const json_t *object, const char *name);
/* Returns a finite number of at least `low`; bench_field_whole returns an integer. */
double bench_field_number(bench_fields *in, const json_t *object, const char *name, double low);
double bench_field_whole(bench_fields *in, const json_t *object, const char *name, double low);
/* Returns a number above 0 that is finite and normal, so that dividing by it is safe. */
double bench_field_positive(bench_fields *in, const json_t *object, const char *name);
/* Returns an object. If `or_null`, null is allowed and gives NULL. */
const json_t *bench_field_object(bench_fields *in, const json_t *object, const char *name,
                                 bool or_null);
const json_t *bench_field_array(bench_fields *in, const json_t *object, const char *name);
/* Returns an index below `count`, or -1 for null. */
int bench_field_place(bench_fields *in, const json_t *object, const char *name, int count);

#endif
