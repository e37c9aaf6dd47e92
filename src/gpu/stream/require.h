/* Checks of arguments that operations share. `op` begins the error text, and `name` is the
 * argument's name in it. Contains no Vulkan types, so that other modules can include it. */
#ifndef TSR_GPU_STREAM_REQUIRE_H
#define TSR_GPU_STREAM_REQUIRE_H

#include "tessera/stream.h"
#include "tessera/tensor.h"

/* The tensor is not NULL, and on the stream's device. */
tsr_status tsr__require_tensor(const char *op, const char *name, const tsr_stream *stream,
                               const tsr_tensor *tensor) TSR_NODISCARD;

/* As tsr__require_tensor, and its dtype is f32, f16 or bf16. */
tsr_status tsr__require_float(const char *op, const char *name, const tsr_stream *stream,
                              const tsr_tensor *tensor) TSR_NODISCARD;

/* `out` is a view that repeats no element. */
tsr_status tsr__require_writable(const char *op, const char *name,
                                 const tsr_tensor *out) TSR_NODISCARD;

/* `out` is writable and shares no element with `in`; if `allow_same`, the two may also be the same
 * view. */
tsr_status tsr__require_disjoint(const char *op, const char *out_name, const tsr_tensor *out,
                                 const char *in_name, const tsr_tensor *in,
                                 bool allow_same) TSR_NODISCARD;

/* Writes the layout of `in` broadcast to the shape of `target`; the error names both shapes. */
tsr_status tsr__require_broadcast(const char *op, const char *name, const tsr_tensor *in,
                                  const char *target_name, const tsr_tensor *target,
                                  tsr_layout *out) TSR_NODISCARD;

tsr_status tsr__require_same_shape(const char *op, const char *a_name, const tsr_tensor *a,
                                   const char *b_name, const tsr_tensor *b) TSR_NODISCARD;

#endif
