/* The members of a stream, and functions that only the files of this folder use. */
#ifndef TSR_GPU_STREAM_STATE_H
#define TSR_GPU_STREAM_STATE_H

#include "gpu/device/timeline.h"
#include "gpu/internal.h"
#include "gpu/stream/batch.h"
#include "gpu/stream/hazards.h"
#include "gpu/stream/stream.h"

/* The largest number of other streams for which the next batch can wait. */
#define TSR__STREAM_WAITS_MAX 8

typedef struct tsr__stream_wait {
    tsr__timeline *timeline; /* the other stream's timeline, to which this holds a reference */
    uint64_t point;
} tsr__stream_wait;

typedef struct tsr__scratch_buffer {
    tsr__buffer *buffer;
    /* the value of tsr_stream.serial when the buffer was last lent to an operation */
    uint64_t lent_serial;
    bool kept; /* if set, the buffer is not lent to another operation */
} tsr__scratch_buffer;

/* Staging memory for one direction. It is a ring of chunks, so that the device copies one chunk
 * while the host copies another. */
typedef struct tsr__staging {
    uint64_t chunk_bytes; /* the size of new chunks */
    tsr__buffer *chunk[TSR__STAGING_CHUNKS];
    int current;
    uint64_t used_bytes; /* the number of bytes of the current chunk that transfers have taken */
} tsr__staging;

/* The state of tsr__stream_profile_begin (profile.c). */
typedef struct tsr__profiling tsr__profiling;

/* A step of the host between two pieces of the stream's work (host_steps.c). */
typedef struct tsr__host_step {
    struct tsr__host_step *next;
    uint64_t point; /* the point at which what was recorded before the step is complete */
    tsr__step_work *run;
    void *user;
} tsr__host_step;

/* What a stream does with the commands that it gets; see tsr__stream_atomic. */
typedef enum tsr__stream_mode {
    TSR__STREAM_SINGLE, /* each command is an operation by itself */
    TSR__STREAM_PREFLIGHT,
    TSR__STREAM_ATOMIC,
} tsr__stream_mode;

struct tsr_stream {
    tsr_device *device;
    const tsr__queue *queue; /* the queue to which batches are submitted */
    /* The stream that does this stream's large uploads and downloads on the device's transfer
     * queue; NULL on devices with one queue. Commands of the two streams that use the same buffer
     * wait for each other, as commands of any two streams do. */
    tsr_stream *transfers;
    const tsr_stream *owner; /* the stream whose `transfers` this is, or NULL */
    tsr__stream_mode mode;
    tsr__timeline *timeline;
    tsr__batch *open; /* the open batch, to which commands are recorded; or NULL */
    /* the batch that replaces `open` when that is submitted, already recording; or NULL */
    tsr__batch *next;
    /* batches that are complete but wait for a host step (host_steps.c) or, if the queue has
     * refused them, for another try; the oldest first */
    tsr__batch *queued;
    tsr__batch *in_flight; /* submitted batches, the oldest first */
    tsr__batch *spare;
    tsr_stream *next_abandoned; /* after tsr_stream_destroy() could not wait for the work */
    uint32_t most_operations;   /* the open batch is submitted when it has this many commands */
    tsr__hazards hazards;
    /* the number of commands recorded so far, including those of preflights */
    uint64_t serial;
    uint64_t preflight_serial; /* the value of `serial` when the last preflight began */
    tsr__host_step *steps;     /* the host steps that have not run, the oldest first */
    bool in_step;              /* a host step is running */
    int wait_count;
    tsr__stream_wait waits[TSR__STREAM_WAITS_MAX];
    tsr__scratch_buffer *scratch;
    size_t scratch_count, scratch_capacity;
    tsr__buffer *posts;       /* the buffer that tsr__stream_post fills at present, or NULL */
    uint64_t post_used_bytes; /* how many bytes of `posts` earlier calls have filled */
    /* `posts` and `post_used_bytes` when the last preflight began. The buffer may be gone, so the
     * pointer is only compared. */
    const tsr__buffer *preflight_posts;
    uint64_t preflight_post_bytes;
    uint64_t atomic_post_bytes; /* how many bytes the preflight, or the operation, has posted */
    tsr__staging upload, readback;
    VkQueryPool timer;
    bool timer_begun, timer_ended;
    double slowdown; /* from TESSERA_SLOWDOWN; 1: full speed */
    /* Recording blocks while destroyed tensors to which only batches have references have more than
     * this many bytes. */
    uint64_t left_limit;
    uint32_t last_independent_group; /* the number that tsr__stream_new_independent_group returned
                                        last */
    uint64_t barriers;               /* the number of barriers recorded */
    uint64_t submissions;            /* the number of submissions that a queue has accepted */
    uint64_t host_waits, idle_waits, steps_run; /* as in tsr__stream_counts */
    tsr__profiling *profiling;  /* between tsr__stream_profile_begin and _end; otherwise NULL */
    uint64_t profiled_barriers; /* of transfer streams: `barriers` after the last command */
};

/* Prepares the recording of a command with `count` accesses. Opens a batch and reserves room for
 * references to the buffers. Submits the work of other streams on which the command depends, and
 * notes that the batch must wait for it. After this, recording the command cannot fail. This
 * function itself cannot fail after a preflight. */
tsr_status tsr__stream_begin(tsr_stream *stream, const tsr__access *access, int count);

/* Records the barrier that the accesses need, and adds references to their buffers to the batch.
 * Cannot fail after tsr__stream_begin. `independent_group` is as in tsr__dispatch. */
void tsr__stream_order(tsr_stream *stream, const tsr__access *access, int count,
                       uint32_t independent_group);

/* Adds references to the buffers to the open batch, which then is their last use. Cannot fail after
 * tsr__stream_begin. */
void tsr__stream_hold(tsr_stream *stream, const tsr__access *access, int count);

/* If TESSERA_LABELS is set, gives the command that is recorded next a label: `name`, and then for
 * each access " reads ADDRESS+BYTES" or " writes ADDRESS+BYTES", in hexadecimal. Must be called
 * after tsr__stream_order. */
void tsr__stream_label(const tsr_stream *stream, const char *name, const tsr__access *access,
                       int count);

/* If the stream is profiled, counts the command that is recorded next. `dispatch` is NULL if it is
 * a copy, a fill or an update. Must be called after tsr__stream_order. */
void tsr__stream_profile_command(tsr_stream *stream, const char *name, const tsr__access *access,
                                 int count, const tsr__dispatch *dispatch);
/* Must be called after that command is recorded. */
void tsr__stream_profile_recorded(tsr_stream *stream);

/* Returns the point at which all batches before the open one are complete. */
uint64_t tsr__stream_closed_point(const tsr_stream *stream);

/* Returns the point at which everything that is recorded so far is complete. */
static inline uint64_t tsr__stream_last_point(const tsr_stream *stream)
{
    return stream->open ? stream->open->point : tsr__stream_closed_point(stream);
}

/* Ends the open batch and puts it behind the queued ones. On failure its commands are dropped,
 * which the error text says. */
tsr_status tsr__stream_close_open(tsr_stream *stream);
/* Submits the queued batches up to the oldest host step. If vkQueueSubmit fails, they stay in the
 * queue, and the next call tries again. */
tsr_status tsr__stream_submit_queued(tsr_stream *stream);
/* Runs the host steps without which the device cannot reach `point`. Blocks until it has reached
 * each of them. */
tsr_status tsr__stream_run_steps(tsr_stream *stream, uint64_t point);
/* Runs host steps that the device has reached, without blocking for it. */
void tsr__stream_poll_steps(tsr_stream *stream);

/* Blocks until the stream's own batches up to `point` are complete. Unlike tsr_stream_wait_point,
 * it does not wait for the stream's transfers on the transfer queue. */
tsr_status tsr__stream_wait_batches(tsr_stream *stream, uint64_t point, uint64_t timeout_ns);

/* Makes the commands that are recorded later wait for the stream's uploads and downloads. */
tsr_status tsr__stream_join_transfers(tsr_stream *stream);

/* Must be called after each command. Submits the batch if it is full. */
tsr_status tsr__stream_recorded(tsr_stream *stream);
/* Submits what is recorded. Fails only if commands were dropped: if the queue refuses a batch, it
 * is submitted later, and the call succeeds. The same holds for tsr__stream_recorded. */
tsr_status tsr__stream_start(tsr_stream *stream);

/* Records a barrier: all commands recorded later wait for all commands recorded earlier. */
void tsr__stream_barrier(tsr_stream *stream);

/* Releases the references of batches that are known to be complete. */
void tsr__stream_retire(tsr_stream *stream);

/* Empties `waits`, and drops its references to the timelines of other streams. */
void tsr__stream_drop_waits(tsr_stream *stream);

/* Must be called before a preflight: notes what memory is in use. */
void tsr__stream_begin_preflight(tsr_stream *stream);
/* Must be called after a preflight. Prevents scratch memory that an operation requested before its
 * preflight from being lent again before the operation's first command. Frees what the preflight
 * has posted, so that the operation can post it without allocating memory. */
void tsr__stream_scratch_after_preflight(tsr_stream *stream);
void tsr__stream_scratch_finish(tsr_stream *stream);
void tsr__stream_staging_finish(tsr_stream *stream);
void tsr__stream_timer_finish(tsr_stream *stream);
void tsr__stream_profile_finish(tsr_stream *stream);

#endif
