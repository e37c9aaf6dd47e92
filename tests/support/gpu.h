/* Functions for GPU tests: a device and a stream for each test (in a Check *checked* fixture,
 * because driver contexts do not survive fork()), and data as doubles. Every validation message
 * makes the test fail. With TEST_ONE_DEVICE and CK_FORK=no, tests of a program share devices, so
 * that their kernels are compiled once. */
#ifndef TSR_TESTS_GPU_H
#define TSR_TESTS_GPU_H

#include "support/check.h"
#include "tessera/tessera.h"

extern tsr_device *gpu;   /* the device under test: TESSERA_DEVICE or the driver's first */
extern tsr_stream *queue; /* a stream on it */

/* For tcase_add_checked_fixture. gpu_teardown fails the test if there are validation messages,
 * or if memory is still in use. */
void gpu_setup(void);
void gpu_teardown(void);

/* Like gpu_setup, for a test that needs a device that has not built any pipelines. */
void gpu_setup_not_shared(void);
/* Like gpu_setup, but without copies by the host's CPUs, so that the device's copies are tested. */
void gpu_setup_by_device(void);
/* Like gpu_setup, but forces 16-bit elements to be packed in words, or transfers to use staging. */
void gpu_setup_packed(void);
void gpu_setup_staged(void);
/* Like gpu_setup, with the kernels and sizes that are chosen for GPUs, which must work on any
 * device. */
void gpu_setup_as_gpu(void);
void gpu_setup_as_gpu_packed(void);
/* Returns true if the device is SwiftShader. It has no attention kernels of its own, and takes many
 * times as long as other drivers to compile some kernels of GPUs. */
bool gpu_is_swiftshader(void);

/* Asserts a call's success, with tsr_last_error() in the message. */
#define GPU_OK(call) gpu_ok_((call), #call, __FILE__, __LINE__)
void gpu_ok_(tsr_status status, const char *text, const char *file, int line);

/* Asserts that a call fails with `status` and that the error text contains `words`. */
#define GPU_FAILS(call, status, words)                                                             \
    gpu_fails_((call), (status), (words), #call, __FILE__, __LINE__)
void gpu_fails_(tsr_status got, tsr_status want, const char *words, const char *text,
                const char *file, int line);

tsr_tensor *gpu_new(tsr_dtype dtype, int ndim, const int64_t *shape);
/* Returns a view of the same memory as another dtype of the same size. */
tsr_tensor *gpu_as(const tsr_tensor *tensor, tsr_dtype dtype);
/* Fills the tensor's complete buffer with bytes 0xff, a NaN in every float type, so that elements
 * that are not written are detected. */
void gpu_poison(tsr_tensor *tensor);

/* Write and read the elements in row-major order. gpu_put converts them like gpu_rounded; reading
 * is exact, except that i64 values beyond 2^53 are rounded. */
void gpu_put(tsr_tensor *tensor, const double *values);
void gpu_get(tsr_tensor *tensor, double *values);
/* Returns the value of `x` stored as `dtype`: floats are rounded once, to nearest even; integers
 * are truncated and saturated, and NaN is 0. */
double gpu_rounded(double x, tsr_dtype dtype);
/* gpu_bits returns the bits of that stored value, and gpu_value the value of such bits. They do
 * not use the library's conversions, because they are the reference for these. */
uint64_t gpu_bits(double x, tsr_dtype dtype);
double gpu_value(uint64_t bits, tsr_dtype dtype);
/* Read and write element `index` of an array of `dtype` in host memory. */
uint64_t gpu_load_bits(const void *data, int64_t index, tsr_dtype dtype);
void gpu_store_bits(void *data, int64_t index, tsr_dtype dtype, uint64_t bits);

/* The random numbers of random.h: they follow from the seed and are the same everywhere. */
typedef struct gpu_random {
    uint64_t state;
} gpu_random;
uint64_t gpu_random_u64(gpu_random *random);
int64_t gpu_random_between(gpu_random *random, int64_t low, int64_t high); /* `high` is included */
double gpu_random_unit(gpu_random *random);                                /* [-1, 1) */

/* Creates a tensor whose rows start at multiples of 8 elements of *parent. All bytes between them
 * are 0xff, which is NaN in each dtype of floats. */
tsr_tensor *gpu_pitched_view(tsr_dtype dtype, int ndim, const int64_t *shape, tsr_tensor **parent);
/* Makes a random view with exactly this shape: contiguous, or sliced, stepped and transposed from a
 * larger poisoned tensor. *parent must be destroyed after the view. */
tsr_tensor *gpu_random_view(gpu_random *random, tsr_dtype dtype, int ndim, const int64_t *shape,
                            tsr_tensor **parent);

#endif
