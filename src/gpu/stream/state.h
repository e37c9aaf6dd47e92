/* The members of a stream, for the files that implement it. */
#ifndef TSR_GPU_STREAM_STATE_H
#define TSR_GPU_STREAM_STATE_H

#include "gpu/device/timeline.h"
#include "gpu/stream/batch.h"
#include "gpu/stream/hazards.h"
#include "gpu/stream/stream.h"

/* The most points of other streams that the next batch can wait for. */
#define TSR__STREAM_WAITS_MAX 8

typedef struct tsr__stream_wait {
    tsr__timeline *timeline; /* holds a reference */
    uint64_t point;
} tsr__stream_wait;

typedef struct tsr__scratch_buffer {
    tsr__buffer *buffer;
    uint64_t lent_serial; /* the value of stream->serial when it was last lent */
    bool kept;            /* until it is given back */
} tsr__scratch_buffer;

/* Staging memory for one direction: a ring of chunks, so that the host copies while the device
 * copies. */
#define TSR__STAGING_CHUNKS 4
#define TSR__STAGING_CHUNK_BYTES (UINT64_C(3) << 20)

typedef struct tsr__staging {
    tsr__buffer *chunk[TSR__STAGING_CHUNKS];
    int current;
    uint64_t used_bytes; /* of the current chunk */
} tsr__staging;

/* What a stream does with commands; see tsr__stream_atomic. */
typedef enum tsr__stream_mode {
    TSR__STREAM_SINGLE, /* each command is an operation */
    TSR__STREAM_PREFLIGHT,
    TSR__STREAM_ATOMIC,
} tsr__stream_mode;

struct tsr_stream {
    tsr_device *device;
    tsr__stream_mode mode;
    tsr__timeline *timeline;
    tsr__batch *open;      /* being recorded, or NULL */
    tsr__batch *next;      /* begun, to replace `open` when that is submitted; or NULL */
    tsr__batch *in_flight; /* oldest first */
    tsr__batch *spare;
    tsr__hazards hazards;
    uint64_t serial;           /* commands recorded so far, and those of preflights */
    uint64_t preflight_serial; /* its value when the last preflight began */
    int wait_count;
    tsr__stream_wait waits[TSR__STREAM_WAITS_MAX];
    tsr__scratch_buffer *scratch;
    size_t scratch_count, scratch_capacity;
    tsr__staging upload, readback;
    VkQueryPool timer;
    bool timer_begun, timer_ended;
    double slowdown; /* from TESSERA_SLOWDOWN; 1: full speed */
    /* Recording blocks while only batches hold more bytes of destroyed tensors than this. */
    uint64_t left_limit;
};

/* Prepares recording a command with `count` accesses: opens a batch, reserves room to hold the
 * buffers, and submits and notes the work of other streams that the command depends on. After this,
 * recording cannot fail. After a preflight this function cannot fail either. */
tsr_status tsr__stream_begin(tsr_stream *stream, const tsr__access *access, int count);

/* Records the barrier that the accesses need and holds their buffers. Cannot fail after
 * tsr__stream_begin. */
void tsr__stream_order(tsr_stream *stream, const tsr__access *access, int count);

/* Must be called after each command. Submits the batch if it is full. */
tsr_status tsr__stream_recorded(tsr_stream *stream);

/* Orders everything recorded later after everything recorded earlier. */
void tsr__stream_barrier(tsr_stream *stream);

/* Releases the buffers and pipelines of batches that are known to be complete. */
void tsr__stream_retire(tsr_stream *stream);

/* Drops the references to other streams' timelines that the next batch would have waited for. */
void tsr__stream_drop_waits(tsr_stream *stream);

/* Protects the scratch that an operation requested before its preflight until its first command. */
void tsr__stream_scratch_after_preflight(tsr_stream *stream);
void tsr__stream_scratch_finish(tsr_stream *stream);
void tsr__stream_staging_finish(tsr_stream *stream);
void tsr__stream_timer_finish(tsr_stream *stream);

#endif
