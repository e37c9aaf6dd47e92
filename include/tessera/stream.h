/* Streams: in-order queues of device work.
 *
 * Operations behave as if each ended before the next one begins, in the order in which they were
 * recorded. Operations that do not depend on each other may overlap. If a tensor is used on one
 * stream and then on another, the second use is ordered after the first automatically.
 *
 * Work is submitted to the device in batches: when a batch is full, at tsr_stream_submit, and
 * before anything waits. All commands of an operation are in one batch, unless there are more than
 * 1024 of them, or they take more than tenths of a second on a small GPU.
 *
 * Recording an operation usually returns at once. It blocks until the device has caught up if the
 * device is 32 batches behind, or if destroyed tensors that unfinished work still uses occupy more
 * than an eighth of the device's memory. With TESSERA_SLOWDOWN it blocks until the batch is
 * complete whenever it submits one.
 *
 * Threads: one thread at a time may use a stream, and all streams that share tensors with it. */
#ifndef TESSERA_STREAM_H
#define TESSERA_STREAM_H

#include "tessera/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Creates a stream, which holds a reference to `device`. Errors: TSR_ERR_INVALID (TESSERA_SLOWDOWN
 * is not a valid factor), TSR_ERR_NO_MEMORY, TSR_ERR_DRIVER, TSR_ERR_DEVICE_LOST. */
TSR_API TSR_NODISCARD tsr_status tsr_stream_create(tsr_device *device, tsr_stream **out);

/* Submits what is recorded, blocks until all of the stream's work is complete, frees the stream and
 * sets *stream to NULL. NULL is allowed. Failures are logged. */
TSR_API void tsr_stream_destroy(tsr_stream **stream);

/* Returns the stream's device, without a new reference to it. */
TSR_API tsr_device *tsr_stream_device(const tsr_stream *stream);

/* Submits everything recorded so far and returns without waiting for it; with TESSERA_SLOWDOWN,
 * blocks until it is complete. If the device's queue refuses the work, it is kept and the next
 * submit tries again. If the driver cannot end the recording, the work is dropped, and the error
 * text gives the number of operations. Errors: TSR_ERR_NO_MEMORY, TSR_ERR_DEVICE_MEMORY,
 * TSR_ERR_DRIVER, TSR_ERR_DEVICE_LOST; the functions that wait return them, too. */
TSR_API TSR_NODISCARD tsr_status tsr_stream_submit(tsr_stream *stream);

/* Submits everything recorded so far. Blocks until all of the stream's work is complete. Errors: as
 * tsr_stream_submit. */
TSR_API TSR_NODISCARD tsr_status tsr_stream_wait(tsr_stream *stream);

/* Gives a point in the stream's work: the end of everything recorded before the call. Later points
 * of a stream are greater integers or equal. Neither blocks nor submits. */
TSR_API TSR_NODISCARD tsr_status tsr_stream_mark(tsr_stream *stream, uint64_t *out_point);
/* Blocks until the stream's work up to `point` is complete, for at most `timeout_ns` nanoseconds.
 * Submits the work first if necessary. A point later than any that the stream has given, such as
 * UINT64_MAX, means all of its work. If work is still running after that time, it continues, and
 * the call returns TSR_ERR_TIMEOUT. Other errors: as tsr_stream_submit. */
TSR_API TSR_NODISCARD tsr_status tsr_stream_wait_point(tsr_stream *stream, uint64_t point,
                                                       uint64_t timeout_ns);
/* Sets *out to whether a point has been reached. Neither blocks nor submits. Errors:
 * TSR_ERR_DEVICE_LOST, TSR_ERR_DRIVER. */
TSR_API TSR_NODISCARD tsr_status tsr_stream_reached(tsr_stream *stream, uint64_t point, bool *out);

/* Measure the time between two places of the stream with the device's timestamps. _begin and _end
 * record them. _read submits the stream, blocks until all of its work is complete, and gives the
 * nanoseconds between the last _begin and the last _end. Errors: TSR_ERR_UNSUPPORTED if the queue
 * has no timestamps; TSR_ERR_INVALID if _end has no _begin before it, or _read no _end since the
 * last _begin. */
TSR_API TSR_NODISCARD tsr_status tsr_stream_timer_begin(tsr_stream *stream);
TSR_API TSR_NODISCARD tsr_status tsr_stream_timer_end(tsr_stream *stream);
TSR_API TSR_NODISCARD tsr_status tsr_stream_timer_read(tsr_stream *stream, uint64_t *out_ns);

#ifdef __cplusplus
}
#endif

#endif
