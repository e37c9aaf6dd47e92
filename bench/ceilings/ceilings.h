/* A ceiling is the highest rate of arithmetic or memory that the hardware reaches. Other results
 * are compared with it. Each ceiling is measured on a device when it is first needed, and again
 * after the benchmarks that are compared with it. The fastest measurement counts, so that a ceiling
 * is not too low if the device was busy during the first one. */
#ifndef TSR_BENCH_CEILINGS_CEILINGS_H
#define TSR_BENCH_CEILINGS_CEILINGS_H

#include "bench/harness/bench.h"

/* These functions return the row of a ceiling, and measure it if necessary. They return NULL on
 * failure. */

/* The rate of f32 multiply-adds in registers. */
const bench_row *bench_fma_peak(bench_context *context);
/* The rate of f16 multiply-adds in registers, two at a time if the device can. Requires fp16. */
const bench_row *bench_fma_peak_f16(bench_context *context);
/* The rate of f16 products of cooperative matrices in registers. Requires bench_has_coopmat. */
const bench_row *bench_coopmat_peak(bench_context *context);
/* Returns true for a GPU on which the library's products use cooperative matrices. */
bool bench_has_coopmat(const tsr_device_info *info);

/* The bandwidth of memcpy on all CPUs of the host. */
const bench_row *bench_memcpy_peak(bench_context *context);
/* The bandwidth of a contiguous tsr_copy on the device. */
const bench_row *bench_device_copy(bench_context *context);
/* The bandwidth of kernels on the device that read one array and write another. */
const bench_row *bench_memory_stream(bench_context *context);
/* The bandwidth of the device's memory: bench_memcpy_peak for CPU drivers; for GPUs, the faster of
 * bench_device_copy and bench_memory_stream. */
const bench_row *bench_memory_peak(bench_context *context);

#endif
