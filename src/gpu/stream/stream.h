/* Recording into streams: what operations use. */
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
/* A whole buffer: scratch. */
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
    double work;         /* multiply-adds; 0 where there are no more than bytes ask for */
    int access_count;
    tsr__access access[TSR__ACCESS_MAX];
} tsr__dispatch;

/* Records the dispatch behind the barriers it needs and holds the buffers until it has run. On
 * failure nothing is recorded. */
tsr_status tsr__stream_dispatch(tsr_stream *stream, const tsr__dispatch *dispatch);

/* The same with the caller's own pipeline; `shader` and the constants are ignored. The batch keeps
 * a reference to the pipeline until it has run. */
tsr_status tsr__stream_run(tsr_stream *stream, tsr__pipeline *pipeline,
                           const tsr__dispatch *dispatch);

typedef struct tsr__copy_region {
    uint64_t source_bytes, destination_bytes, size_bytes; /* offsets within the buffers */
} tsr__copy_region;

/* vkCmdCopyBuffer. Regions do not overlap; `source` and `destination` cover all of them. */
tsr_status tsr__stream_copy(tsr_stream *stream, tsr__access source, tsr__access destination,
                            const tsr__copy_region *regions, uint32_t count);

/* vkCmdFillBuffer with a 32-bit pattern; the range is 4-byte aligned. */
tsr_status tsr__stream_fill(tsr_stream *stream, tsr__access destination, uint32_t pattern);

/* The commands of one operation, through the functions above. */
typedef tsr_status tsr__steps(tsr_stream *stream, void *work);

/* An operation of several commands, which fails before it has recorded the first. `steps` is called
 * twice: to rehearse, when commands only make their pipelines, submit what other streams have to do
 * first and reserve room, and to record, into one batch, so that no part of it is submitted without
 * the rest. It makes the same commands both times, and does nothing else that can fail; it may be a
 * part of other steps. What is left: a device may get lost, and of an operation that is too much
 * for one batch the driver may refuse a later one. */
tsr_status tsr__stream_atomic(tsr_stream *stream, tsr__steps *steps, void *work) TSR_NODISCARD;

/* For steps that are long: commands with the pipelines and buffers of earlier ones need not be
 * rehearsed. */
bool tsr__stream_in_preflight(const tsr_stream *stream);

/* A scratch buffer for the operation being recorded. The stream owns it and lends it again to later
 * operations, in order with its work; the caller releases nothing. An operation asks for all of its
 * scratch before its first command. */
tsr_status tsr__stream_scratch(tsr_stream *stream, uint64_t size_bytes, tsr__buffer **out);
/* The same for the host to write at once: NULL where there is one, but recorded work uses it. */
tsr_status tsr__stream_idle_scratch(tsr_stream *stream, uint64_t size_bytes, tsr__buffer **out);

/* Waits until no work recorded on any stream uses the buffer. */
tsr_status tsr__buffer_wait(tsr__buffer *buffer);
/* True when no recorded work uses it any more. */
bool tsr__buffer_idle(tsr__buffer *buffer);

/* Workgroups of `size` invocations for `count` items, folded into x and y so that neither exceeds
 * what every device has (65535). Shaders rebuild the index with tsr_flat_group() and return past
 * the end. */
void tsr__groups_for(uint64_t count, uint32_t size, uint32_t groups[3]);

#endif
