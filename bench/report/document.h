/* A run that was written as JSON, read back. Files come from anywhere: what is not as
 * docs/bench.schema.json says is refused with a sentence, and control characters of its texts
 * become question marks. */
#ifndef TSR_BENCH_REPORT_DOCUMENT_H
#define TSR_BENCH_REPORT_DOCUMENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct bench_figures {
    const char *benchmark;
    int device; /* its place in the document; -1: the host's */
    bool is_ceiling, noisy, is_time;
    const json_t *which; /* the case */
    char label[192];     /* … in words: "f32 1×4096×4096" */
    const char *unit;    /* "GFLOP/s", "GB/s" or "ns" */
    double median, low, high, best;
    double work, bytes;  /* bytes 0: not known */
    double fraction;     /* of the ceiling; 0: none */
    const char *ceiling; /* its name; NULL: none */
    int ceiling_place;   /* among the results */
    double device_ns;    /* by the device's clock; 0: it has none */
    int samples;         /* taken, each the mean of so many: */
    double repetitions;
    const char *method; /* how it was verified */
    const char *peer;   /* what else did the same work; NULL: nothing */
    double peer_median; /* in the unit */
    double busbw;       /* of a collective operation, GB/s; 0: none */
} bench_figures;

typedef struct bench_device_figures {
    const char *name; /* with a number where the run has several of that name: "GPU (2)" */
    const char *type, *driver_name, *driver_info, *uuid;
} bench_device_figures;

#define BENCH_NAME 160
typedef struct bench_document {
    json_t *root; /* owns all strings */
    const char *path;
    char name[BENCH_NAME]; /* the file's, without .json and, as far as possible, folders */
    const char *tessera, *time, *cpu, *os;
    const char *alone; /* the benchmark that was asked for; NULL: all */
    int cpus;
    double duration_s;
    int device_count, result_count;
    bench_device_figures *devices;
    bench_figures *results;
    const json_t *warnings, *left_out, *failures; /* arrays, as in the file */
} bench_document;

#define BENCH_PROBLEM 512
/* Reads a file; `path` must outlive the document. Otherwise writes a sentence into `problem`. */
bool bench_document_read(const char *path, bench_document *document, char problem[BENCH_PROBLEM]);
void bench_document_free(bench_document *document);

/* Names of runs that stand beside one another: as many folders as tell a file from the others, and
 * a number where none do. One alone has its file's name. */
void bench_documents_name(bench_document *all, int count);

/* What the driver says of itself; its name, where it says nothing. */
const char *bench_driver_text(const bench_device_figures *device);

/* The value with its unit: "31.3 GFLOP/s", "4.70 ms". */
#define BENCH_VALUE_TEXT 48
char *bench_figures_text(const bench_figures *figures, double value, char text[BENCH_VALUE_TEXT]);

#endif
