/* The interface between benchmarks and the harness. docs/benchmarks.md shows how to add a benchmark
 * in a small file.
 *
 * A benchmark's run() adds rows. A row is one result: a case and its times. For each row, run()
 * names the case, runs the work once, checks the result, and then lets the harness time the work.
 * The harness refuses to time a row that was not verified. The code that prints reports reads only
 * rows, and contains nothing that is specific to a benchmark. */
#ifndef TSR_BENCH_HARNESS_BENCH_H
#define TSR_BENCH_HARNESS_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/harness/check.h"
#include "bench/harness/machine.h"
#include "bench/harness/progress.h"
#include "bench/harness/samples.h"
#include "cli/lib/say.h"
#include "tessera/tessera.h"

#define BENCH_MAX_SHAPES 64
#define BENCH_MAX_DTYPES 3
#define BENCH_MAX_PARAMS 6
#define BENCH_MIN_RANKS 2 /* the smallest number of ranks of a collective operation */

typedef struct bench_shape {
    int64_t m, k, n;
} bench_shape;

/* The options of the command line. If a list is empty, the benchmark uses its own defaults. */
typedef struct bench_options {
    const char *device;
    double seconds; /* the time to spend on measuring one row */
    int64_t size_mib, ranks;
    /* Sizes of collective operations in bytes: min_bytes, and so on up to max_bytes, each
     * step_factor times the previous one; 0: not given. */
    int64_t min_bytes, max_bytes, step_factor;
    bool peer, large;
    /* This is a complete run (complete.h): cases of which one repetition takes longer than
     * `seconds` on this device are left out. */
    bool complete;
    int dtype_count;
    tsr_dtype dtypes[BENCH_MAX_DTYPES];
    int shape_count;
    bench_shape shapes[BENCH_MAX_SHAPES];
} bench_options;

/* The options other than --device, --time, --json and --output that a benchmark accepts. */
enum {
    BENCH_SHAPES = 1,
    BENCH_DTYPES = 2,
    BENCH_SIZE = 4,
    BENCH_PEER = 8,
    BENCH_LARGE = 16,
    BENCH_RANKS = 32,
    BENCH_BYTES = 64,
    BENCH_ONE_SHAPE = 128, /* only one shape may be given; set together with BENCH_SHAPES */
    /* The benchmark divides the bytes equally among the ranks, so that --min-bytes must give each
     * rank at least one element. Set together with BENCH_BYTES. */
    BENCH_SHARES = 256
};

typedef struct bench_context bench_context;

typedef struct bench {
    const char *name;
    const char *summary;
    const char *help;  /* what exactly is measured, in lines of at most 100 characters */
    unsigned takes;    /* the options that the benchmark accepts: BENCH_SHAPES | … */
    bool opens_device; /* run() opens the device itself, because that is part of the measurement */
    bool host_only;    /* needs no device; also exists in builds without Vulkan */
    bool alone;        /* left out of a complete run, because another benchmark covers it */
    bool (*run)(bench_context *context);
} bench;

typedef enum bench_unit {
    BENCH_GFLOPS, /* work is floating-point operations */
    BENCH_GBYTES, /* work is bytes read plus bytes written */
    BENCH_TIME    /* work is the number of equal actions in one repetition */
} bench_unit;

typedef struct bench_param {
    const char *name;
    char text[64];
    bool is_number;
} bench_param;

typedef struct bench_row {
    const char *benchmark; /* the benchmark's name, such as "matmul", or a ceiling's name */
    /* index of the device in the order in which devices were opened; -1: the host */
    int device_place;
    bool is_ceiling;
    int param_count;
    bench_param params[BENCH_MAX_PARAMS + 1]; /* a row that uses the last one fails */
    bench_unit unit;
    double work;       /* the work of one repetition, which `unit` explains */
    double bytes;      /* the fewest bytes that the operation must read and write; 0: unknown */
    double bus_factor; /* for collectives: the bytes that the links between ranks carry, divided by
                          `bytes`; 0: not a collective */
    bench_check check;
    bench_samples host, device; /* no device samples if the device has no timestamps */
    /* The ceilings (see bench/ceilings/ceilings.h) that limit the row: the device's highest rate of
     * arithmetic and of memory. NULL: unknown. */
    const struct bench_row *arithmetic, *memory;
    /* Only in the row of a ceiling: measures the ceiling again and keeps the faster result. */
    bool (*again)(bench_context *context, struct bench_row *row);
    char peer_name[128];
    bench_samples peer;
    double peak_bytes;     /* peak memory of a process that did only the work of this row; 0: not
                              measured */
    const char *elsewhere; /* text about a published result of another system, which was not
                              measured in this run; or NULL */
} bench_row;

/* A case or benchmark that was left out of a complete run, or that failed. */
typedef struct bench_note {
    const char *benchmark;
    int device_place;
    char text[1024];
} bench_note;

typedef struct bench_notes {
    int count;
    bench_note *all;
} bench_notes;

struct bench_context {
    const bench_options *options;
    tsr_device *device;
    tsr_stream *stream;
    const tsr_device_info *info; /* NULL if no device is open */
    int device_count;            /* number of devices opened so far; `info` is the last of them */
    tsr_device_info **devices;
    bench_progress progress;
    bench_noise noise;
    /* The job of a launcher, whose ranks all run this benchmark; NULL: this process is alone. Only
     * rank 0 adds rows and reports them; see bench_reports(). */
    tsr_comm *job;
    const char *peer_warning; /* a sentence that says why the peer is slow; or NULL */
    int row_count;
    bench_row **rows;
    /* The ceilings of the open device and of the host. NULL until they have been measured. */
    const bench_row *fma_peak, *fma_peak_f16, *coopmat_peak, *device_copy, *memory_stream;
    const bench_row *memcpy_peak;
    bench_notes left_out, failures;
    char error[2048]; /* the reason why run() returned false */
};

/* Opens a device, as --device names it, or the default for NULL, and creates a stream on it. Closes
 * the previous device. */
bool bench_open_device(bench_context *context, const char *which);
/* Assigns the rows that follow to the device that is open. Only benchmarks that open the device
 * themselves need this function. */
void bench_use_device(bench_context *context);
void bench_close_device(bench_context *context);
/* Removes the rows from `first` on, after a benchmark has failed. Ceilings that other rows use
 * remain. */
void bench_drop_rows(bench_context *context, int first);
void bench_finish(bench_context *context);
/* Returns whether this process reports results: it is alone, or rank 0 of its job. */
bool bench_reports(const bench_context *context);

/* Rows ----------------------------------------------------------------------------------------- */

/* Adds a row, which the context owns. bench_text and bench_integer add the parameters that name the
 * case; all rows of a benchmark have the same parameters, at most BENCH_MAX_PARAMS. With more,
 * bench_verified and bench_measure fail. */
bench_row *bench_add(bench_context *context, const char *benchmark, bench_unit unit, double work);
void bench_text(bench_row *row, const char *name, const char *format, ...) CLI_PRINTF(3, 4);
void bench_integer(bench_row *row, const char *name, int64_t value);

/* Converts `ns`, the time of one repetition, to a value in the row's unit: GFLOP/s, GB/s, or
 * nanoseconds per action. */
double bench_value(const bench_row *row, double ns);
/* Returns the value of the row's median time by the host's clock. */
double bench_median(const bench_row *row);
/* Returns the ceiling that limits the row. If the row has a ceiling of arithmetic and one of
 * memory, it is the one at which the row's work would take longer. NULL: unknown. */
const bench_row *bench_ceiling(const bench_row *row);
/* Returns the row's median value divided by its ceiling; 0 if it has no ceiling. */
double bench_fraction(const bench_row *row);

/* How a result compares with its ceiling. */
typedef enum bench_standing {
    BENCH_WITHIN, /* below the ceiling, or at most a few per cent above it */
    BENCH_CACHED, /* above the bandwidth of the memory, but the data fit into caches */
    /* Above the ceiling for another reason: the device was slower while
     * the ceiling was measured. */
    BENCH_ABOVE
} bench_standing;
/* Judges a result. `fraction` is the result divided by its ceiling. `by_memory` is true if this is
 * the ceiling of memory. `bytes` is the number of bytes that one repetition reads and writes. */
bench_standing bench_compare_with_ceiling(double fraction, bool by_memory, double bytes);
bench_standing bench_stands(const bench_row *row);
/* Writes the row's name, for example "matmul dtype f32 m 1 k 4096 n 4096". */
void bench_describe(const bench_row *row, char *text, size_t size);

/* Notes that a case is left out. `format` describes the case. */
void bench_leave_out(bench_context *context, const char *benchmark, const char *format, ...)
    CLI_PRINTF(3, 4);

/* Returns whether a case should be measured, if one repetition of it takes `ns`. In a complete run,
 * it returns false if that is longer than the time for one result; the case, which `format`
 * describes, is then noted as left out. */
bool bench_worthwhile(bench_context *context, const char *benchmark, double ns, const char *format,
                      ...) CLI_PRINTF(4, 5);

/* Does the same as bench_worthwhile, but in every run it also returns false if one repetition takes
 * more than 20 s. For cases that the user did not ask for. */
bool bench_bearable(bench_context *context, const char *benchmark, double ns, const char *format,
                    ...) CLI_PRINTF(4, 5);

/* Failures ------------------------------------------------------------------------------------- */

/* Records the reason why the benchmark has failed and returns false. */
bool bench_fail(bench_context *context, const char *format, ...) CLI_PRINTF(2, 3);
/* Returns whether `status` is TSR_OK; otherwise records the error. Used by BENCH_TRY. */
bool bench_passed(bench_context *context, tsr_status status, const char *what);

/* Returns false from the calling function if a call of the library fails, and keeps its error
 * text. */
#define BENCH_TRY(context, call)                                                                   \
    do {                                                                                           \
        if (!bench_passed((context), (call), #call))                                               \
            return false;                                                                          \
    } while (0)

/* Returns true if the row's check passed and the row has not too many parameters; otherwise records
 * what is wrong. */
bool bench_verified(bench_context *context, const bench_row *row);

/* Timing --------------------------------------------------------------------------------------- */

typedef struct bench_task {
    /* Does one repetition: records it on the stream, or runs it on the host. */
    tsr_status (*run)(tsr_stream *stream, void *user);
    void *user;
    /* `run` records nothing on the stream, so the harness neither waits for the stream nor reads
     * device timestamps. */
    bool host_only;
    bool no_device_clock; /* the device's timestamps would not cover what is measured */
} bench_task;

/* Warms up, then takes samples until the time is used up. Each sample repeats the task until it
 * lasts at least a millisecond, then waits for the stream. Fails if the row was not verified. */
bool bench_measure(bench_context *context, bench_row *row, const bench_task *task);
/* Measures the same work done by other software, the peer, for comparison. */
bool bench_measure_peer(bench_context *context, bench_row *row, const char *peer_name,
                        const bench_task *task);
/* Doubles *rounds, how often a kernel's loop runs, until the time to start the kernel is
 * negligible, but not beyond `most`. */
bool bench_lengthen(bench_context *context, const bench_task *task, uint32_t *rounds,
                    uint32_t most);
/* Measures again all ceilings with which the rows from `first` on are compared. */
bool bench_ceilings_again(bench_context *context, int first);

/* Adds a sample to the row, for a benchmark that measures times itself instead of calling
 * bench_measure. */
void bench_sample(bench_row *row, double ns);

/* All benchmarks; the list ends with NULL. list.c has a line for each. */
extern const bench *const bench_list[];
const bench *bench_find(const char *name);
/* Text for the error message "there is no benchmark NAME": why a benchmark may be missing from
 * bench_list in this build. "" if the build has all benchmarks. */
extern const char bench_list_lacks[];

#endif
