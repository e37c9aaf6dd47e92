/* Uploads and downloads through staging memory, which is a ring of chunks for each direction. A
 * transfer is divided into copies of at most COPY_BYTES. */
#include "gpu/stream/staging.h"

#include <string.h>

#include "base/checked.h"

/* vkCmdCopyBuffer does not require alignment, but drivers copy aligned ranges faster. */
#define STAGING_ALIGNMENT 64
/* The most that one command copies. The device executes a copy while the host prepares the next
 * one; only during the first and the last copy of a transfer, one of them is idle. Smaller copies
 * would shorten that time, but a bus should need longer for a copy (here at least 100 µs) than
 * submitting it takes. */
#define COPY_BYTES (UINT64_C(4) << 20)
/* If there is no memory for a chunk, smaller chunks are tried, down to this size. */
#define LEAST_CHUNK_BYTES (UINT64_C(64) << 10)

static tsr_status create_chunk(tsr_device *device, tsr__staging *staging, tsr__buffer_kind kind,
                               tsr__buffer **out)
{
    for (;;) {
        const tsr_status status = tsr__buffer_create(device, kind, staging->chunk_bytes, out);
        if (status != TSR_ERR_DEVICE_MEMORY || staging->chunk_bytes / 2 < LEAST_CHUNK_BYTES)
            return status;
        staging->chunk_bytes /= 2;
    }
}

/* Takes at most `wanted_bytes` (at least 1) of staging memory. Blocks until the chunk that contains
 * them is free. */
static tsr_status take(tsr_stream *stream, tsr__staging *staging, tsr__buffer_kind kind,
                       uint64_t wanted_bytes, tsr__access *out)
{
    tsr__buffer *chunk = staging->chunk[staging->current];
    if (!chunk || staging->used_bytes >= chunk->size_bytes) {
        int next = chunk ? (staging->current + 1) % TSR__STAGING_CHUNKS : staging->current;
        if (!staging->chunk[next]) {
            const tsr_status status =
                create_chunk(stream->device, staging, kind, &staging->chunk[next]);
            /* If there is no memory for another chunk, use the existing chunks in turn. */
            if (status == TSR_ERR_DEVICE_MEMORY && next > 0)
                next = 0;
            else
                TSR__TRY(status);
        }
        TSR__TRY(tsr__buffer_wait(staging->chunk[next]));
        staging->current = next;
        staging->used_bytes = 0;
        chunk = staging->chunk[next];
    }
    uint64_t size = tsr__min_u64(wanted_bytes, chunk->size_bytes - staging->used_bytes);
    size = tsr__min_u64(size, COPY_BYTES);
    *out = (tsr__access){chunk, staging->used_bytes, staging->used_bytes + size, false};
    staging->used_bytes = tsr__align_up_u64(staging->used_bytes + size, STAGING_ALIGNMENT);
    return TSR_OK;
}

/* Returns the stream that performs a transfer. Buffers that the host maps are copied by the stream
 * itself, because the host reads such a buffer once the stream has reached the point of its last
 * use. */
static tsr_stream *stream_for(tsr_stream *stream, const tsr__buffer *buffer, uint64_t size_bytes)
{
    const bool small = size_bytes < stream->device->transfer_least_bytes;
    return stream->transfers && !buffer->host && !small ? stream->transfers : stream;
}

static tsr_status upload_copies(tsr_stream *stream, tsr__buffer *buffer, uint64_t offset_bytes,
                                const void *data, uint64_t size_bytes)
{
    const uint8_t *from = data;
    for (uint64_t done = 0; done < size_bytes;) {
        tsr__access source;
        TSR__TRY(take(stream, &stream->upload, TSR__BUFFER_UPLOAD, size_bytes - done, &source));
        uint64_t size = source.end_bytes - source.begin_bytes;
        memcpy((uint8_t *)source.buffer->host + source.begin_bytes, from + done, size);
        tsr__access destination = {buffer, offset_bytes + done, offset_bytes + done + size, true};
        tsr__copy_region region = {source.begin_bytes, offset_bytes + done, size};
        TSR__TRY(tsr__stream_copy(stream, source, destination, &region, 1));
        done += size;
        /* Submit now, so that the device copies this chunk while the host fills the next one. */
        if (done < size_bytes)
            TSR__TRY(tsr_stream_submit(stream));
    }
    return TSR_OK;
}

tsr_status tsr__staging_upload(tsr_stream *stream, tsr__buffer *buffer, uint64_t offset_bytes,
                               const void *data, uint64_t size_bytes)
{
    tsr_stream *on = stream_for(stream, buffer, size_bytes);
    TSR__TRY(upload_copies(on, buffer, offset_bytes, data, size_bytes));
    /* If the transfer stream does the copies, submit them now, so that they run at the same time as
     * the stream's own commands. */
    return on == stream ? TSR_OK : tsr__stream_start(on);
}

/* A recorded copy to staging memory, from which the host has not read it yet. */
typedef struct readback {
    tsr__access staged;
    uint64_t point;
    uint64_t done_bytes;
} readback;

static tsr_status readback_start(tsr_stream *stream, tsr__buffer *buffer, uint64_t offset_bytes,
                                 uint64_t size_bytes, uint64_t done, readback *out)
{
    tsr__access staged;
    TSR__TRY(take(stream, &stream->readback, TSR__BUFFER_READBACK, size_bytes - done, &staged));
    uint64_t size = staged.end_bytes - staged.begin_bytes;
    staged.write = true;
    tsr__access source = {buffer, offset_bytes + done, offset_bytes + done + size, false};
    tsr__copy_region region = {offset_bytes + done, staged.begin_bytes, size};
    TSR__TRY(tsr__stream_copy(stream, source, staged, &region, 1));
    TSR__TRY(tsr_stream_mark(stream, &out->point));
    TSR__TRY(tsr_stream_submit(stream));
    out->staged = staged;
    out->done_bytes = done;
    return TSR_OK;
}

/* True if the next copy would replace the contents of `chunk`. */
static bool next_replaces(const tsr__staging *staging, const tsr__buffer *chunk)
{
    const tsr__buffer *current = staging->chunk[staging->current],
                      *next = staging->chunk[(staging->current + 1) % TSR__STAGING_CHUNKS];
    return staging->used_bytes >= current->size_bytes && (!next || next == chunk);
}

static tsr_status readback_finish(tsr_stream *stream, const readback *copied, uint8_t *data)
{
    TSR__TRY(tsr__stream_wait_batches(stream, copied->point, UINT64_MAX));
    memcpy(data + copied->done_bytes,
           (const uint8_t *)copied->staged.buffer->host + copied->staged.begin_bytes,
           copied->staged.end_bytes - copied->staged.begin_bytes);
    return TSR_OK;
}

tsr_status tsr__staging_download(tsr_stream *stream, tsr__buffer *buffer, uint64_t offset_bytes,
                                 void *data, uint64_t size_bytes)
{
    tsr_stream *on = stream_for(stream, buffer, size_bytes);
    /* Submit the stream's own commands now: they run at the same time as the copies on the transfer
     * queue, which wait only for the commands that write the copied buffer. Copies on the stream
     * itself are in the same batch as these commands. */
    if (on != stream)
        TSR__TRY(tsr_stream_submit(stream));
    stream = on;
    /* The device executes one copy while the host reads the results of the previous one. */
    readback earlier = {0}, latest = {0};
    bool have_earlier = false;
    for (uint64_t done = 0; done < size_bytes;) {
        if (have_earlier && next_replaces(&stream->readback, earlier.staged.buffer)) {
            TSR__TRY(readback_finish(stream, &earlier, data));
            have_earlier = false;
        }
        TSR__TRY(readback_start(stream, buffer, offset_bytes, size_bytes, done, &latest));
        done += latest.staged.end_bytes - latest.staged.begin_bytes;
        if (have_earlier)
            TSR__TRY(readback_finish(stream, &earlier, data));
        earlier = latest;
        have_earlier = true;
    }
    return have_earlier ? readback_finish(stream, &earlier, data) : TSR_OK;
}

static void finish(tsr__staging *staging)
{
    for (int i = 0; i < TSR__STAGING_CHUNKS; i++)
        tsr__buffer_release(staging->chunk[i]);
    memset(staging, 0, sizeof *staging);
}

void tsr__stream_staging_finish(tsr_stream *stream)
{
    finish(&stream->upload);
    finish(&stream->readback);
}
