/* Reads a run that was written as JSON. The file is not trusted: one that does not match
 * docs/bench.schema.json is refused with a message, and control characters in texts are replaced by
 * question marks. */
#ifndef TSR_BENCH_REPORT_DOCUMENT_H
#define TSR_BENCH_REPORT_DOCUMENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "bench/harness/bench.h"

typedef struct bench_figures {
    const char *benchmark;
    int device; /* the device's index in the document; -1: the host */
    bool is_ceiling, noisy, is_time;
    const json_t *which; /* the parameters of the case */
    char label[192];     /* the case in words: "f32 1×4096×4096" */
    const char *unit;    /* "GFLOP/s", "GB/s" or "ns" */
    double median, low, high, best;
    double work, bytes;  /* bytes 0: unknown */
    double fraction;     /* the result divided by its ceiling; 0: it has no ceiling */
    const char *ceiling; /* the name of its ceiling; NULL: it has none */
    int ceiling_place;   /* the index of its ceiling among the results */
    bench_standing standing;
    double device_ns; /* the median by the device's clock; 0: there are no device samples */
    int samples; /* the number of samples; each is the mean time of `repetitions` repetitions */
    double repetitions;
    const char *method; /* how the result was verified, in words */
    const char *peer;   /* other software that did the same work; NULL: none */
    double peer_median; /* in the same unit as the median */
    double busbw;       /* bus bandwidth of a collective operation, in GB/s; 0: not a collective */
} bench_figures;

typedef struct bench_device_figures {
    const char *name; /* with a number if the run has several devices of that name: "GPU (2)" */
    const char *type, *driver_name, *driver_info, *uuid;
    double memory_bytes; /* the size of its largest heap on the device; 0: unknown */
} bench_device_figures;

#define BENCH_NAME 160
typedef struct bench_document {
    json_t *root; /* the JSON document, which owns all strings of this struct */
    const char *path;
    char name[BENCH_NAME]; /* the file's name, without .json and unnecessary folders */
    const char *tessera, *time, *cpu, *os;
    const char *alone; /* the only benchmark of the run; NULL: the run measured all */
    int cpus;
    double duration_s;
    int device_count, result_count;
    bench_device_figures *devices;
    bench_figures *results;
    const json_t *warnings, *left_out, *failures; /* arrays, as in the file */
} bench_document;

#define BENCH_PROBLEM 512
/* Reads a file; `path` must outlive the document. On failure writes a sentence into `problem`. */
bool bench_document_read(const char *path, bench_document *document, char problem[BENCH_PROBLEM]);
/* Does the same as bench_document_read for JSON that is already in memory; `document` then owns
 * `root`. `path` is its name in messages. */
bool bench_document_take(json_t *root, const char *path, bench_document *document,
                         char problem[BENCH_PROBLEM]);
void bench_document_free(bench_document *document);

/* Gives each run a unique name: the file's name, with as many folders as are needed to distinguish
 * it, or with a number if folders do not. */
void bench_documents_name(bench_document *documents, int count);

/* Returns the driver's description of itself, or its name if the description is empty. */
const char *bench_driver_text(const bench_device_figures *device);

/* Writes a value with its unit: "31.3 GFLOP/s", "242 TFLOP/s", "4.70 ms". */
#define BENCH_VALUE_TEXT 48
char *bench_figures_text(const bench_figures *figures, double value, char text[BENCH_VALUE_TEXT]);

#endif
