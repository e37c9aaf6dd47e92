/* Recording into streams, for operations. */
#ifndef TSR_GPU_STREAM_STREAM_H
#define TSR_GPU_STREAM_STREAM_H

#include "gpu/memory/tensor.h"
#include "gpu/pipeline/pipeline.h"
#include "gpu/stream/require.h"
#include "tessera/stream.h"

#define TSR__ACCESS_MAX 16

/* A byte range of a buffer that a command reads or writes. */
typedef struct tsr__access {
    tsr__buffer *buffer;
    uint64_t begin_bytes, end_bytes; /* within the buffer */
    bool write;                      /* a command that reads and writes a range sets this too */
} tsr__access;

/* The range of a tensor's elements. */
tsr__access tsr__read_of(const tsr_tensor *tensor);
tsr__access tsr__write_of(const tsr_tensor *tensor);
/* A complete buffer, for scratch. */
tsr__access tsr__read_buffer(tsr__buffer *buffer);
tsr__access tsr__write_buffer(tsr__buffer *buffer);
/* The device address of a range's first byte. */
uint64_t tsr__access_address(tsr__access access);

/* One compute dispatch. Specialization constants are 0, 1, …, spec_count − 1. */
typedef struct tsr__dispatch {
    tsr__shader shader;
    int spec_count;
    uint32_t spec[TSR__SPEC_MAX];
    const void *push;
    uint32_t push_bytes; /* ≤ TSR__PUSH_MAX, a multiple of 4 */
    uint32_t groups[3];  /* within the device's limits; a 0 among them records nothing */
    double work;         /* multiply-adds; 0 if the bytes accessed already account for the work */
    int access_count;
    tsr__access access[TSR__ACCESS_MAX];
} tsr__dispatch;

/* Records the dispatch after the barriers that it needs, and holds the buffers until it has run. On
 * failure nothing is recorded. */
tsr_status tsr__stream_dispatch(tsr_stream *stream, const tsr__dispatch *dispatch);

/* As tsr__stream_dispatch with the caller's own pipeline; `shader` and the constants are ignored.
 * The batch holds a reference to the pipeline until it has run. */
tsr_status tsr__stream_run(tsr_stream *stream, tsr__pipeline *pipeline,
                           const tsr__dispatch *dispatch);

typedef struct tsr__copy_region {
    uint64_t source_bytes, destination_bytes, size_bytes; /* offsets within the buffers */
} tsr__copy_region;

/* Records vkCmdCopyBuffer. Regions must not overlap; `source` and `destination` must cover all of
 * them. */
tsr_status tsr__stream_copy(tsr_stream *stream, tsr__access source, tsr__access destination,
                            const tsr__copy_region *regions, uint32_t count);

/* Records vkCmdFillBuffer with a 32-bit pattern. The range must be 4-byte aligned. */
tsr_status tsr__stream_fill(tsr_stream *stream, tsr__access destination, uint32_t pattern);

/* Records vkCmdUpdateBuffer: the range gets the bytes at `data`, which are copied by this call. The
 * range is 4-byte aligned and of 4 to 65536 bytes. */
tsr_status tsr__stream_update(tsr_stream *stream, tsr__access destination, const void *data);

/* The commands of one operation, recorded with the functions above. */
typedef tsr_status tsr__steps(tsr_stream *stream, void *work);

/* Records an operation of several commands that is atomic: it fails before it has recorded the
 * first command, or not at all.
 *
 * `steps` is called twice. In the first call, the preflight, commands only build their pipelines,
 * submit the work of other streams that they depend on, and reserve room. In the second call they
 * are recorded into one batch, so that no part of the operation is submitted without the rest.
 * `steps` must make the same commands both times and do nothing else that can fail. Calls may be
 * nested.
 *
 * Two failures remain possible: the device may be lost, and if the operation is too large for one
 * batch, the driver may refuse a later batch. */
tsr_status tsr__stream_atomic(tsr_stream *stream, tsr__steps *steps, void *work) TSR_NODISCARD;

/* True during the preflight. Operations of many commands may then leave out commands that use the
 * same pipelines and buffers as earlier ones. */
bool tsr__stream_in_preflight(const tsr_stream *stream);

/* Gives a scratch buffer for the operation being recorded. The stream owns the buffer and lends it
 * again to later operations, in order with its work, so the caller releases nothing. An operation
 * must request all of its scratch before its first command. */
tsr_status tsr__stream_scratch(tsr_stream *stream, uint64_t size_bytes, tsr__buffer **out);
/* As tsr__stream_scratch, for operations that are composed of others: the buffer is not lent again
 * before it is given back. NULL may be given back. */
tsr_status tsr__stream_keep_scratch(tsr_stream *stream, uint64_t size_bytes, tsr__buffer **out);
void tsr__stream_return_scratch(tsr_stream *stream, const tsr__buffer *buffer);
/* As tsr__stream_scratch, for memory that the host writes at once. Gives NULL if there is a buffer
 * of this size but recorded work uses it. */
tsr_status tsr__stream_idle_scratch(tsr_stream *stream, uint64_t size_bytes, tsr__buffer **out);

/* Blocks until no work recorded on any stream uses the buffer. */
tsr_status tsr__buffer_wait(tsr__buffer *buffer);
/* True if no recorded work uses the buffer any more. */
bool tsr__buffer_idle(tsr__buffer *buffer);

/* Computes the number of workgroups of `size` invocations for `count` items. It is split over x and
 * y so that neither exceeds 65535, the limit that every device supports. Shaders compute the index
 * with tsr_flat_group() and return if it is past the end. */
void tsr__groups_for(uint64_t count, uint32_t size, uint32_t groups[3]);

#endif
