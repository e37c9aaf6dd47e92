/* The functions with which operations record commands into streams. */
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
    uint64_t begin_bytes, end_bytes; /* counted from the start of the buffer */
    bool write;                      /* true also if the command both reads and writes the range */
} tsr__access;

/* Returns the range from a tensor's first element to its last one, for a read or a write. */
tsr__access tsr__read_of(const tsr_tensor *tensor);
tsr__access tsr__write_of(const tsr_tensor *tensor);
/* Returns the range of a complete buffer, for scratch memory. */
tsr__access tsr__read_buffer(tsr__buffer *buffer);
tsr__access tsr__write_buffer(tsr__buffer *buffer);
/* Returns the device address of the range's first byte. */
uint64_t tsr__access_address(tsr__access access);

/* One compute dispatch. The ids of the specialization constants are 0, 1, …, spec_count − 1. */
typedef struct tsr__dispatch {
    tsr__shader shader;
    int spec_count;
    uint32_t spec[TSR__SPEC_MAX];
    const void *push;
    uint32_t push_bytes; /* at most TSR__PUSH_MAX, a multiple of 4 */
    /* the number of workgroups, within the device's limits; if one is 0, nothing is recorded */
    uint32_t groups[3];
    /* If its buffer is not NULL, the device reads the number of workgroups, at most `groups`, from
     * the first three words of this range, which is also in `access`. Only kernels for CPU drivers
     * use this: barriers of GPUs would cost more. */
    tsr__access counted;
    /* the work in multiply-adds; 0: it is estimated from the bytes of `access` */
    double work;
    /* For profiles (profile.h): the multiply-adds of floats, 0 in kernels other than products and
     * attention; and the bytes that are read and written, if these are much fewer than the ranges
     * of `access` have. 0: the bytes of the ranges. */
    double multiply_adds, read_bytes, written_bytes;
    /* Dispatches with the same number other than 0 are independent: none reads or
     * writes what another one writes, although their ranges may say so. They need no barriers
     * between each other. See tsr__stream_new_independent_group. */
    uint32_t independent_group;
    int access_count;
    tsr__access access[TSR__ACCESS_MAX];
} tsr__dispatch;

/* Returns a number for tsr__dispatch.independent_group that no earlier dispatch of the stream has.
 */
uint32_t tsr__stream_new_independent_group(tsr_stream *stream);

/* Records the dispatch, and before it the barriers that it needs. The batch keeps references to the
 * buffers until the dispatch has run. On failure nothing is recorded. */
tsr_status tsr__stream_dispatch(tsr_stream *stream, const tsr__dispatch *dispatch);

/* The same as tsr__stream_dispatch, but with the caller's own pipeline; `shader` and the
 * specialization constants are ignored. The batch keeps a reference to the pipeline until the
 * dispatch has run. */
tsr_status tsr__stream_run(tsr_stream *stream, tsr__pipeline *pipeline,
                           const tsr__dispatch *dispatch);

typedef struct tsr__copy_region {
    /* counted from the start of each buffer */
    uint64_t source_bytes, destination_bytes, size_bytes;
} tsr__copy_region;

/* Records vkCmdCopyBuffer. Regions must not overlap. `source` and `destination` must be ranges that
 * contain all regions. */
tsr_status tsr__stream_copy(tsr_stream *stream, tsr__access source, tsr__access destination,
                            const tsr__copy_region *regions, uint32_t count);

/* Records vkCmdFillBuffer with a 32-bit pattern. The range must begin and end at multiples of 4
 * bytes. */
tsr_status tsr__stream_fill(tsr_stream *stream, tsr__access destination, uint32_t pattern);

/* Records vkCmdUpdateBuffer, which writes the bytes at `data` to the range. This call copies
 * `data`, so the caller may change it afterwards. The range must begin and end at multiples of 4
 * bytes and have 4 to 65536 bytes. */
tsr_status tsr__stream_update(tsr_stream *stream, tsr__access destination, const void *data);

/* Records the commands of one operation with the functions above. */
typedef tsr_status tsr__steps(tsr_stream *stream, void *work);

/* Records an atomic operation of several commands: if it fails, it has not recorded any command.
 *
 * `steps` is called twice. In the first call, the preflight, commands only build their pipelines,
 * submit the work of other streams on which they depend, and reserve memory. In the second call
 * they are recorded into one batch, so that no part of the operation is submitted without the rest.
 * `steps` must make the same commands both times and do nothing else that can fail. Calls may be
 * nested.
 *
 * Two failures remain possible: the device may be lost; and if the operation is too large for one
 * batch, the driver may refuse a later batch. */
tsr_status tsr__stream_atomic(tsr_stream *stream, tsr__steps *steps, void *work) TSR_NODISCARD;

/* True during the preflight. An operation may then leave out commands that use the same pipelines
 * and the same buffers as its earlier commands. */
bool tsr__stream_in_preflight(const tsr_stream *stream);

/* Provides a scratch buffer for the operation that is being recorded. The stream owns the buffer
 * and lends it to later operations, too, so the caller must not release it. An operation must
 * request all of its scratch memory before its first command. */
tsr_status tsr__stream_scratch(tsr_stream *stream, uint64_t size_bytes, tsr__buffer **out);
/* The same as tsr__stream_scratch, for operations that call other operations. The buffer is not
 * lent again, for example to these, until the caller gives it back with tsr__stream_return_scratch,
 * which also accepts NULL. */
tsr_status tsr__stream_keep_scratch(tsr_stream *stream, uint64_t size_bytes, tsr__buffer **out);
void tsr__stream_return_scratch(tsr_stream *stream, const tsr__buffer *buffer);
/* The same as tsr__stream_scratch, for memory that the host writes immediately. Sets *out to NULL
 * if there is a buffer of this size but recorded work uses it. */
tsr_status tsr__stream_idle_scratch(tsr_stream *stream, uint64_t size_bytes, tsr__buffer **out);

/* Copies `data` to device memory immediately, without a command. Commands that are recorded later
 * can read it, and write to it if they declare that: *out is the range, whose address is a multiple
 * of 16. The range lasts until the batches that read it are complete, so those commands must be
 * recorded before the next call of this function. out->buffer is NULL if the host does not reach
 * the device's memory or there are more than 64 KiB, for an atomic operation in total: what its
 * preflight has reserved is enough for the operation. */
tsr_status tsr__stream_post(tsr_stream *stream, const void *data, uint64_t size_bytes,
                            tsr__access *out) TSR_NODISCARD;

/* Blocks until all recorded work that uses the buffer, on any stream, is complete. */
tsr_status tsr__buffer_wait(tsr__buffer *buffer);
/* True if all recorded work that uses the buffer is complete. */
bool tsr__buffer_idle(tsr__buffer *buffer);

/* Computes the number of workgroups of `size` invocations for `count` items. The number is divided
 * among x and y so that neither exceeds 65535, the limit that every device supports. Shaders
 * compute their index with tsr_flat_group() and return if it is past the end. */
void tsr__groups_for(uint64_t count, uint32_t size, uint32_t groups[3]);

#endif
