/* Host-visible memory on the way to and from devices whose own memory the host cannot reach. */
#ifndef TSR_GPU_STAGING_H
#define TSR_GPU_STAGING_H

#include "gpu/stream_state.h"

/* A piece of staging memory of at most `wanted_bytes` (at least 1): waits until the chunk it lies
 * in is free. */
tsr_status tsr__staging_take(tsr_stream *stream, tsr__staging *staging, tsr__buffer_kind kind,
                             uint64_t wanted_bytes, tsr__access *out);

/* Records copies of `size_bytes` bytes from `data` to the buffer at `offset_bytes`. */
tsr_status tsr__staging_upload(tsr_stream *stream, tsr__buffer *buffer, uint64_t offset_bytes,
                               const void *data, uint64_t size_bytes);

/* Copies from the buffer to `data` and waits for it. */
tsr_status tsr__staging_download(tsr_stream *stream, tsr__buffer *buffer, uint64_t offset_bytes,
                                 void *data, uint64_t size_bytes);

#endif
