/* What a benchmark is made of. docs/benchmarks.md shows how to add one in a small file.
 *
 * A benchmark's run() adds rows. For each it names the case, runs the work once and checks the
 * result, then lets the harness time it; a row that was not verified is refused. Rows are all that
 * the reports see: they know nothing of any particular benchmark. */
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
#define BENCH_FEWEST_RANKS 2 /* of collective operations, which begin with so many */

typedef struct bench_shape {
    int64_t m, k, n;
} bench_shape;

/* What the command line asked for. Lists that are empty mean the benchmark's own defaults. */
typedef struct bench_options {
    const char *device;
    double seconds; /* to spend on timing one row */
    int64_t size_mib, ranks;
    int64_t min_bytes, max_bytes, step_factor; /* of sizes in bytes; all 0, or none */
    bool peer, json, large;
    bool complete; /* all benchmarks in one run: what takes long on this device is left out */
    int dtype_count;
    tsr_dtype dtypes[BENCH_MAX_DTYPES];
    int shape_count;
    bench_shape shapes[BENCH_MAX_SHAPES];
} bench_options;

/* Which of the options beyond --device, --time and --json mean something to a benchmark. */
enum {
    BENCH_SHAPES = 1,
    BENCH_DTYPES = 2,
    BENCH_SIZE = 4,
    BENCH_PEER = 8,
    BENCH_LARGE = 16,
    BENCH_RANKS = 32,
    BENCH_BYTES = 64,
    BENCH_ONE_SHAPE = 128, /* BENCH_SHAPES, but no more than one */
    BENCH_SHARES = 256     /* BENCH_BYTES, of which each rank has an equal share */
};

typedef struct bench_context bench_context;

typedef struct bench {
    const char *name;
    const char *summary;
    const char *help;  /* what exactly is measured, in lines of at most 100 characters */
    unsigned takes;    /* BENCH_SHAPES | … */
    bool opens_device; /* opening it is part of what is measured: run() does so */
    bool host_only;    /* needs no device, and is there in builds without Vulkan */
    bool alone;        /* no part of a complete run: another benchmark covers it */
    bool (*run)(bench_context *context);
} bench;

typedef enum bench_unit {
    BENCH_GFLOPS, /* work is floating-point operations */
    BENCH_GBYTES, /* work is bytes read plus bytes written */
    BENCH_TIME    /* work is how many equal things one repetition did */
} bench_unit;

typedef struct bench_param {
    const char *name;
    char text[64];
    bool is_number;
} bench_param;

typedef struct bench_row {
    const char *benchmark; /* "matmul", or a ceiling's name */
    int device_place;      /* among the context's devices; -1: the host's */
    bool is_ceiling;
    int param_count;
    bench_param params[BENCH_MAX_PARAMS];
    bench_unit unit;
    double work;       /* in one repetition */
    double bytes;      /* that operations read and write at the least; 0: not known */
    double bus_factor; /* of a collective: what the links carry, by its rate; 0: no collective */
    bench_check check;
    bench_samples host, device; /* no device samples where the device has no clock */
    /* The ceilings that limit it; NULL: none is known. */
    const struct bench_row *arithmetic, *memory;
    /* Of a ceiling: measures it again. */
    bool (*again)(bench_context *context, struct bench_row *row);
    char peer_name[128];
    bench_samples peer;
    double peak_bytes;     /* the most memory a process had that did this alone; 0: not measured */
    const char *elsewhere; /* another system's figure, not measured in this run; or NULL */
} bench_row;

/* What a complete run did without: too slow here, or failed. */
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
    const tsr_device_info *info; /* NULL without a device */
    int device_count;            /* that were opened so far; `info` is the last of them */
    tsr_device_info **devices;
    bench_progress progress;
    bench_noise noise;
    const char *peer_warning; /* why a peer is slower than it could be, in a sentence, or NULL */
    int row_count;
    bench_row **rows;
    /* Ceilings of this device, and of the host, once they have been measured. */
    const bench_row *fma_peak, *fma_peak_f16, *coopmat_peak, *device_copy, *memory_stream;
    const bench_row *memcpy_peak;
    bench_notes left_out, failures;
    char error[2048]; /* why run() returned false */
};

/* Opens a device by what --device takes, or NULL, with a stream. The one before is closed. */
bool bench_open_device(bench_context *context, const char *which);
/* Makes the open device known to the rows that follow; for a benchmark that opens it itself. */
void bench_use_device(bench_context *context);
void bench_close_device(bench_context *context);
/* Takes back the rows from `first` on, of a benchmark that failed; ceilings that are in use stay.
 */
void bench_drop_rows(bench_context *context, int first);
void bench_finish(bench_context *context);

/* Rows ----------------------------------------------------------------------------------------- */

/* A new row, owned by the context. The parameters that follow name the case; rows of one benchmark
 * have the same ones. */
bench_row *bench_add(bench_context *context, const char *benchmark, bench_unit unit, double work);
void bench_text(bench_row *row, const char *name, const char *format, ...) CLI_PRINTF(3, 4);
void bench_integer(bench_row *row, const char *name, int64_t value);

/* In the row's unit: GFLOP/s, GB/s, or nanoseconds per thing done. */
double bench_value(const bench_row *row, double ns);
/* … of the median by the host's clock. */
double bench_median(const bench_row *row);
/* The ceiling that limits the row: of two, the one that needs more time. NULL: none is known. */
const bench_row *bench_ceiling(const bench_row *row);
/* The part of its ceiling that the median reaches; 0 without a ceiling. */
double bench_fraction(const bench_row *row);

/* How a result compares with its ceiling. */
typedef enum bench_standing {
    BENCH_WITHIN, /* at most a few per cent above it */
    BENCH_CACHED, /* above the bandwidth of the memory, with data that fits in caches */
    BENCH_ABOVE   /* above it: the ceiling was measured in a slower moment */
} bench_standing;
/* `bytes` is what one repetition reads and writes; `by_memory`: the ceiling is one of memory. */
bench_standing bench_compare_with_ceiling(double fraction, bool by_memory, double bytes);
bench_standing bench_stands(const bench_row *row);
/* "matmul dtype f32 m 1 k 4096 n 4096" */
void bench_describe(const bench_row *row, char *text, size_t size);

/* Whether a case whose one repetition lasts so long has its place in this run: always, unless it is
 * a complete one. If not, it is noted as left out, the case being described by `format`. */
bool bench_worthwhile(bench_context *context, const char *benchmark, double ns, const char *format,
                      ...) CLI_PRINTF(4, 5);

/* Failures ------------------------------------------------------------------------------------- */

/* Records the reason and returns false. */
bool bench_fail(bench_context *context, const char *format, ...) CLI_PRINTF(2, 3);
/* As BENCH_TRY. */
bool bench_passed(bench_context *context, tsr_status status, const char *what);

/* Returns false from the caller when a call of the library fails, keeping its error text. */
#define BENCH_TRY(context, call)                                                                   \
    do {                                                                                           \
        if (!bench_passed((context), (call), #call))                                               \
            return false;                                                                          \
    } while (0)

/* Writes why `row` is wrong when its check says so; true when all is well. */
bool bench_verified(bench_context *context, const bench_row *row);

/* Timing --------------------------------------------------------------------------------------- */

typedef struct bench_task {
    /* One repetition: records it on the stream, or does it. */
    tsr_status (*run)(tsr_stream *stream, void *user);
    void *user;
    bool host_only;       /* nothing is recorded: no waiting, no device clock */
    bool no_device_clock; /* the device's clock would not see what is measured */
} bench_task;

/* Warms up, then takes samples until the time is spent. Each sample runs the task as often as it
 * takes to last long enough, then waits for the stream. Refuses a row that has not been verified.
 */
bool bench_measure(bench_context *context, bench_row *row, const bench_task *task);
/* The same work done by something else, for comparison. */
bool bench_measure_peer(bench_context *context, bench_row *row, const char *peer_name,
                        const bench_task *task);
/* Doubles the rounds that the task makes of a kernel's loop until starting it costs nothing next to
 * them, or they are `most`. */
bool bench_lengthen(bench_context *context, const bench_task *task, uint32_t *rounds,
                    uint32_t most);
/* Measures the ceilings again that the rows from `first` on are compared with. */
bool bench_ceilings_again(bench_context *context, int first);

/* A sample taken by other means. */
void bench_sample(bench_row *row, double ns);

/* All benchmarks, ending with NULL. A new one has its line in list.c. */
extern const bench *const bench_list[];
const bench *bench_find(const char *name);
/* Why a name may be missing there, to follow "there is no benchmark NAME": "" in a build with
 * everything. */
extern const char bench_list_lacks[];

#endif
