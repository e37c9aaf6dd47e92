/* The self-test of all kernels of a device. */
#ifndef TSR_GPU_CHECKS_TESTED_KERNELS_H
#define TSR_GPU_CHECKS_TESTED_KERNELS_H

#include "gpu/checks/case.h"
#include "gpu/pipeline/pipeline.h"

/* A kernel of the self-test, and the case that tests it. Several kernels may share a case. */
typedef struct tsr__check {
    const char *name;
    tsr__case_fn *run;
    tsr_dtype only; /* the kernel's dtype if it has only one; 0: it has several */
    bool blocks;    /* the case tests block formats, and float dtypes too if `only` is 0 */
    bool cached;    /* the case tests the block formats of keys and values only */
    bool optional;  /* some devices lack the kernel, or never choose it */
} tsr__check;

/* Writes kernel number `i`, counted from 0, to `out`. Returns false if there is no such kernel.
 * Kernels that multiply matrices of floats are not among them. */
bool tsr__check_at(int i, tsr__check *out);

/* Tests all kernels that have a test and that the device uses, for all dtypes, as opening a device
 * with TESSERA_SELF_TEST=full does. */
void tsr__self_test_all(tsr_device *device);

/* Tests the kernel of this name, unless its result is known. Returns whether the kernel may be
 * used, which is true for names without a test. */
bool tsr__self_test_kernel(tsr_device *device, const char *name, tsr_dtype dtype);

#endif
