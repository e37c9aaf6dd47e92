/* What GPU tests share: one device and stream per test case (a Check *checked* fixture: driver
 * contexts do not survive fork()), data in and out as doubles, and a failing test for every
 * validation message. */
#ifndef TSR_TESTS_GPU_H
#define TSR_TESTS_GPU_H

#include "support/check.h"
#include "tessera/tessera.h"

extern tsr_device *gpu;   /* the device under test: TESSERA_DEVICE or the driver's first */
extern tsr_stream *queue; /* a stream on it */

/* For tcase_add_checked_fixture. The teardown fails the test on validation messages and on memory
 * still in use. */
void gpu_setup(void);
void gpu_teardown(void);

/* As gpu_setup, but no copies by the host's CPUs, so that the device's are tested. */
void gpu_setup_by_device(void);
/* … with the packed-word storage path, or the staging path, forced. */
void gpu_setup_packed(void);
void gpu_setup_staged(void);
/* … with what is chosen on GPUs, whatever the device is: it has to work on all. */
void gpu_setup_as_gpu(void);
void gpu_setup_as_gpu_packed(void);

/* Asserts a call's success, with tsr_last_error() in the message. */
#define GPU_OK(call) gpu_ok_((call), #call, __FILE__, __LINE__)
void gpu_ok_(tsr_status status, const char *text, const char *file, int line);

/* Asserts that a call fails with `status` and that the error text contains `words`. */
#define GPU_FAILS(call, status, words)                                                             \
    gpu_fails_((call), (status), (words), #call, __FILE__, __LINE__)
void gpu_fails_(tsr_status got, tsr_status want, const char *words, const char *text,
                const char *file, int line);

tsr_tensor *gpu_new(tsr_dtype dtype, int ndim, const int64_t *shape);
/* The same memory as another dtype of the same size. */
tsr_tensor *gpu_as(const tsr_tensor *tensor, tsr_dtype dtype);
/* Fills the tensor's whole buffer with bytes 0xff: a NaN in every float type, so that what is not
 * written shows. */
void gpu_poison(tsr_tensor *tensor);

/* Elements in row-major order, as gpu_rounded makes them on the way in and exact on the way out
 * (i64 beyond 2^53 is rounded). */
void gpu_put(tsr_tensor *tensor, const double *values);
void gpu_get(tsr_tensor *tensor, double *values);
/* The value `x` becomes when stored as `dtype`: floats round once, to nearest even; integers
 * truncate and saturate, NaN is 0. */
double gpu_rounded(double x, tsr_dtype dtype);
/* The bits of that value, and the value of bits. Written without the library's own conversions: the
 * reference for them. */
uint64_t gpu_bits(double x, tsr_dtype dtype);
double gpu_value(uint64_t bits, tsr_dtype dtype);
/* Element `index` of an array of `dtype` in host memory. */
uint64_t gpu_load_bits(const void *data, int64_t index, tsr_dtype dtype);
void gpu_store_bits(void *data, int64_t index, tsr_dtype dtype, uint64_t bits);

/* Random numbers for tests, those of random.h: seeded, the same everywhere. */
typedef struct gpu_random {
    uint64_t state;
} gpu_random;
uint64_t gpu_random_u64(gpu_random *random);
int64_t gpu_random_between(gpu_random *random, int64_t low, int64_t high); /* inclusive */
double gpu_random_unit(gpu_random *random);                                /* [-1, 1) */

/* A random view with exactly this shape: sliced, stepped, transposed out of a larger poisoned
 * tensor, or contiguous. *parent is to be destroyed after the view. */
tsr_tensor *gpu_random_view(gpu_random *random, tsr_dtype dtype, int ndim, const int64_t *shape,
                            tsr_tensor **parent);

#endif
