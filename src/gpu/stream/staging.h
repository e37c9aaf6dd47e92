/* Host-visible memory through which data is copied to and from devices whose own memory the host
 * cannot access. */
#ifndef TSR_GPU_STREAM_STAGING_H
#define TSR_GPU_STREAM_STAGING_H

#include "gpu/stream/state.h"

/* Copies `size_bytes` bytes from `data` to staging memory, and records their copies to the buffer,
 * from `offset_bytes` on. The caller may then change `data`. */
tsr_status tsr__staging_upload(tsr_stream *stream, tsr__buffer *buffer, uint64_t offset_bytes,
                               const void *data, uint64_t size_bytes);

/* Copies from the buffer to `data`. Blocks until the copy is complete. */
tsr_status tsr__staging_download(tsr_stream *stream, tsr__buffer *buffer, uint64_t offset_bytes,
                                 void *data, uint64_t size_bytes);

#endif
