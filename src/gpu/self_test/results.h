/* The results of self-tests, as a list and as a file. */
#ifndef TSR_GPU_SELF_TEST_RESULTS_H
#define TSR_GPU_SELF_TEST_RESULTS_H

#include "gpu/pipeline/cache_file.h"
#include "gpu/self_test/findings.h"

/* Reads the results that are stored for a device. The list is empty if there is no file, or if it
 * is damaged or from another build of the library. Errors: TSR_ERR_NO_MEMORY. */
tsr_status tsr__results_read(const tsr_device_info *info, tsr__storage storage,
                             tsr__self_tests *out) TSR_NODISCARD;

/* Adds the results to those that are stored; results of the same kernels are replaced. Failures are
 * logged. */
void tsr__results_store(const tsr_device_info *info, tsr__storage storage,
                        const tsr__self_tests *results);

/* Returns the result of a kernel for a dtype, or NULL if the list has none. */
tsr__self_test *tsr__results_find(tsr__self_tests *results, const char *kernel, tsr_dtype dtype);

/* Sets or adds a result. If the list is full, nothing changes. */
void tsr__results_set(tsr__self_tests *results, const tsr__self_test *result);

#endif
