/* Checks of arguments that several operations use. Error texts begin with `op` and call the
 * argument `name`. This header contains no Vulkan types, so that other modules can include it. */
#ifndef TSR_GPU_STREAM_REQUIRE_H
#define TSR_GPU_STREAM_REQUIRE_H

#include "tessera/stream.h"
#include "tessera/tensor.h"

/* Checks that the tensor is not NULL and is on the stream's device. */
tsr_status tsr__require_on_device(const char *op, const char *name, const tsr_stream *stream,
                                  const tsr_tensor *tensor) TSR_NODISCARD;

/* Checks that the tensor is not in blocks (tessera/quant.h), which few operations support. */
tsr_status tsr__require_no_blocks(const char *op, const char *name,
                                  const tsr_tensor *tensor) TSR_NODISCARD;

/* Makes the checks of tsr__require_on_device and tsr__require_no_blocks. */
tsr_status tsr__require_tensor(const char *op, const char *name, const tsr_stream *stream,
                               const tsr_tensor *tensor) TSR_NODISCARD;

/* Makes the checks of tsr__require_tensor, and checks that the dtype is f32, f16 or bf16. */
tsr_status tsr__require_float(const char *op, const char *name, const tsr_stream *stream,
                              const tsr_tensor *tensor) TSR_NODISCARD;

/* Checks that no element occurs twice in the view `out`. */
tsr_status tsr__require_writable(const char *op, const char *name,
                                 const tsr_tensor *out) TSR_NODISCARD;

/* Checks that `out` is writable and has no element in common with `in`. If `allow_same` is set,
 * both may also be the same view. */
tsr_status tsr__require_disjoint(const char *op, const char *out_name, const tsr_tensor *out,
                                 const char *in_name, const tsr_tensor *in,
                                 bool allow_same) TSR_NODISCARD;

/* Broadcasts `in` to the shape of `target` and writes the resulting layout. The error text contains
 * both shapes. */
tsr_status tsr__require_broadcast(const char *op, const char *name, const tsr_tensor *in,
                                  const char *target_name, const tsr_tensor *target,
                                  tsr_layout *out) TSR_NODISCARD;

tsr_status tsr__require_same_shape(const char *op, const char *a_name, const tsr_tensor *a,
                                   const char *b_name, const tsr_tensor *b) TSR_NODISCARD;

#endif
