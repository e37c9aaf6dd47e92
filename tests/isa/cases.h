/* The operations whose kernels are examined. They use every kernel for GPUs, with the sizes, dtypes
 * and tiles that matter for speed. */
#ifndef TESTS_ISA_CASES_H
#define TESTS_ISA_CASES_H

#include "tessera/stream.h"

/* Records every case on the stream, and calls `recorded` with its name after each. */
typedef void isa_recorded_fn(void *user, const char *name);
void isa_record_cases(tsr_stream *stream, isa_recorded_fn *recorded, void *user);

#endif
