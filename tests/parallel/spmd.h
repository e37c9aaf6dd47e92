/* Tests that several processes run together, under `tessera launch`:
 *
 *     CASE(sums_are_sums, "all-reduce sums results across ranks")
 *     {
 *         CHECK(got == want, "element %d is %g, not %g", i, got, want);
 *     }
 *
 * All ranks run all cases, in order; rank 0 prints TAP. The first failure on any rank is printed by
 * that rank, and ends the job. A process alone is rank 0 of 1: the same cases test that, too. */
#ifndef TESTS_PARALLEL_SPMD_H
#define TESTS_PARALLEL_SPMD_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tessera/tessera.h"

extern tsr_comm *world;   /* all ranks; NULL in a process that was not launched */
extern tsr_device *gpu;   /* this rank's device */
extern tsr_stream *queue; /* a stream on `gpu` */
extern tsr_group *group;  /* all ranks, on this rank's stream */
extern tsr_group *staged; /* like `group`, but tensors pass through host memory in small pieces */
extern int my_rank, ranks;

typedef void (*case_fn)(void);
void case_register(const char *name, case_fn run);

#define CASE(function, name)                                                                       \
    static void function(void);                                                                    \
    __attribute__((constructor)) static void register_##function(void)                             \
    {                                                                                              \
        case_register(name, function);                                                             \
    }                                                                                              \
    static void function(void)

__attribute__((format(printf, 3, 4), noreturn)) void case_fail(const char *file, int line,
                                                               const char *format, ...);
/* Reports this case as skipped. All ranks must call it, and then return from the case. */
__attribute__((format(printf, 1, 2))) void case_skip(const char *format, ...);

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            case_fail(__FILE__, __LINE__, __VA_ARGS__);                                            \
    } while (0)
#define OK(call)                                                                                   \
    do {                                                                                           \
        tsr_status ok_ = (call);                                                                   \
        CHECK(ok_ == TSR_OK, "%s: %s: %s", #call, tsr_status_name(ok_), tsr_last_error());         \
    } while (0)
/* Checks that a call fails with this status, and exactly this text. */
#define FAILS(call, status, text)                                                                  \
    do {                                                                                           \
        tsr_status got_ = (call);                                                                  \
        CHECK(got_ == (status), "%s gave %s, not %s", #call, tsr_status_name(got_), #status);      \
        CHECK(strcmp(tsr_last_error(), text) == 0, "%s said \"%s\", not \"%s\"", #call,            \
              tsr_last_error(), text);                                                             \
    } while (0)

/* Without memory for a new batch of commands, a full batch is submitted, recording continues, and
 * no call fails. Between watch_full_batches(true) and (false), `went_on` becomes true when that
 * happens. */
extern bool went_on;
void watch_full_batches(bool on);

/* Numbers ------------------------------------------------------------------------------------ */

/* Returns element `index` of a random sequence, in [-1, 1). It is the same on all ranks. */
double number(uint64_t sequence, int64_t index);
/* Returns `count` numbers of a random sequence, rounded to `dtype`; free() them. */
double *numbers(uint64_t sequence, int64_t count, tsr_dtype dtype);
double *doubles(int64_t count);

tsr_tensor *tensor_new(tsr_dtype dtype, int ndim, const int64_t *shape);
/* tensor_of creates a tensor with these values. values_of reads a tensor's values; free() them. */
tsr_tensor *tensor_of(tsr_dtype dtype, int ndim, const int64_t *shape, const double *values);
double *values_of(const tsr_tensor *tensor);
void tensor_put(tsr_tensor *tensor, const double *values);
/* Returns the bytes of a tensor's elements; free() them. */
uint8_t *bytes_of(const tsr_tensor *tensor, uint64_t *size_bytes);
/* Creates a non-contiguous view of this shape in a tensor of its own. */
tsr_tensor *tensor_with_gaps(tsr_dtype dtype, int ndim, const int64_t *shape);

int64_t count_of(int ndim, const int64_t *shape);
/* Returns elements start … start + count − 1 of dimension `dim`; free() them. */
double *slice_of(const double *values, int ndim, const int64_t *shape, int dim, int64_t start,
                 int64_t count);

/* Checks |got − want| ≤ tolerance · magnitude[i] for all elements. */
void check_close(const char *what, const double *got, const double *want, const double *magnitude,
                 int64_t count, double tolerance);
/* Returns the error of sums of products in this dtype, relative to the sum of their magnitudes. */
double tolerance_of(tsr_dtype dtype);

#endif
