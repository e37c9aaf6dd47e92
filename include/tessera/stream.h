/* Streams: in-order queues of device work.
 *
 * Operations are recorded and run in the order they were recorded, as if each had finished before
 * the next began; those that do not depend on each other may overlap. Work reaches the device in
 * batches: when one is full, at tsr_stream_submit, and whenever something is waited for. An
 * operation is in one batch as a whole, unless it makes more than 1024 commands, or tenths of a
 * second of work for a small GPU. Recording waits only for a device that is 32 batches behind, or
 * that keeps more than an eighth of its memory busy for tensors that have been destroyed. A tensor
 * used on one stream and then on another is ordered between them automatically.
 *
 * Threads: one thread at a time per stream. Streams that share tensors belong to one thread at a
 * time together. */
#ifndef TESSERA_STREAM_H
#define TESSERA_STREAM_H

#include "tessera/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Holds `device`. Errors: TSR_ERR_INVALID (TESSERA_SLOWDOWN is no factor), TSR_ERR_NO_MEMORY,
 * TSR_ERR_DRIVER, TSR_ERR_DEVICE_LOST. */
TSR_API TSR_NODISCARD tsr_status tsr_stream_create(tsr_device *device, tsr_stream **out);

/* Submits what is recorded, waits for it, frees the stream and sets *stream to NULL. NULL is fine.
 * A failure on the way is logged. */
TSR_API void tsr_stream_destroy(tsr_stream **stream);

TSR_API tsr_device *tsr_stream_device(const tsr_stream *stream);

/* Hands everything recorded so far to the device and returns at once. */
TSR_API TSR_NODISCARD tsr_status tsr_stream_submit(tsr_stream *stream);

/* Submits and waits until all of the stream's work is done. */
TSR_API TSR_NODISCARD tsr_status tsr_stream_wait(tsr_stream *stream);

/* As tsr_stream_wait, for at most `timeout_ns`: TSR_ERR_TIMEOUT when work is still running then,
 * which goes on. */
TSR_API TSR_NODISCARD tsr_status tsr_stream_wait_for(tsr_stream *stream, uint64_t timeout_ns);

/* A point in the stream's work: everything recorded before the call. Points of one stream compare
 * as integers. */
TSR_API TSR_NODISCARD tsr_status tsr_stream_mark(tsr_stream *stream, uint64_t *out_point);
/* Waits for a point of this stream, submitting it first if need be; a later one than the stream has
 * given means all of its work. */
TSR_API TSR_NODISCARD tsr_status tsr_stream_wait_point(tsr_stream *stream, uint64_t point,
                                                       uint64_t timeout_ns);
/* Whether a point has been reached; never waits and never submits. */
TSR_API TSR_NODISCARD tsr_status tsr_stream_reached(tsr_stream *stream, uint64_t point, bool *out);

/* The time between two places of the stream as the device's own clock saw it. _begin and _end
 * record timestamps; _read submits, waits and gives the nanoseconds of the last pair. Errors:
 * TSR_ERR_UNSUPPORTED where the queue has no timestamps, TSR_ERR_INVALID when _end has no _begin
 * before it, and _read no pair since the last _begin. */
TSR_API TSR_NODISCARD tsr_status tsr_stream_timer_begin(tsr_stream *stream);
TSR_API TSR_NODISCARD tsr_status tsr_stream_timer_end(tsr_stream *stream);
TSR_API TSR_NODISCARD tsr_status tsr_stream_timer_read(tsr_stream *stream, uint64_t *out_ns);

#ifdef __cplusplus
}
#endif

#endif
