/* The scratch memory of a stream, which is lent to one operation after another. Operations that use
 * the same buffer do not run at the same time: the stream executes in order, and the accesses that
 * each operation declares cause barriers between them. */
#include "gpu/stream/state.h"

#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"

#define POSTS_BYTES (UINT64_C(64) << 10)
#define POST_ALIGN 16

/* True if a command was recorded after the buffer was lent. The operation that requested the buffer
 * then already has all its scratch memory, so the buffer can be lent again. The commands of a
 * preflight (stream.h) count as recorded, too; otherwise the operations that an atomic operation
 * consists of could not use the same buffer one after another in the preflight, as they do when
 * they are recorded. */
static bool unused(const tsr_stream *stream, const tsr__scratch_buffer *entry)
{
    const bool of_caller =
        stream->mode == TSR__STREAM_PREFLIGHT && entry->lent_serial == stream->preflight_serial;
    return !entry->kept && !of_caller && entry->lent_serial != stream->serial;
}

static bool lendable(const tsr_stream *stream, const tsr__scratch_buffer *entry, uint64_t size)
{
    return unused(stream, entry) && entry->buffer->size_bytes >= size;
}

static tsr__scratch_buffer *smallest_fit(tsr_stream *stream, uint64_t size, bool idle)
{
    tsr__scratch_buffer *best = NULL;
    for (size_t i = 0; i < stream->scratch_count; i++) {
        tsr__scratch_buffer *entry = &stream->scratch[i];
        if (lendable(stream, entry, size) && (!idle || tsr__buffer_idle(entry->buffer)) &&
            (!best || entry->buffer->size_bytes < best->buffer->size_bytes))
            best = entry;
    }
    return best;
}

/* Called if all buffers that are not lent at present are too small for an operation. Drops one of
 * them, and the caller creates a larger one. */
static void drop_one_unused(tsr_stream *stream)
{
    for (size_t i = 0; i < stream->scratch_count; i++)
        if (unused(stream, &stream->scratch[i])) {
            tsr__buffer_release(stream->scratch[i].buffer);
            stream->scratch[i] = stream->scratch[--stream->scratch_count];
            return;
        }
}

static tsr_status create(tsr_stream *stream, uint64_t size_bytes, tsr__buffer **out)
{
    const tsr_status status =
        tsr__buffer_create(stream->device, TSR__BUFFER_DEVICE, size_bytes, out);
    if (status != TSR_ERR_DEVICE_MEMORY)
        return status;
    /* There is no memory: wait until the batches are complete, which frees the memory of destroyed
     * tensors, and try again. */
    TSR__TRY(tsr_stream_wait(stream));
    return tsr__buffer_create(stream->device, TSR__BUFFER_DEVICE, size_bytes, out);
}

static tsr_status lend(tsr_stream *stream, uint64_t size_bytes, tsr__scratch_buffer *entry,
                       tsr__buffer **out)
{
    if (!entry) {
        void *array = stream->scratch;
        tsr_status status = tsr__grow(&array, &stream->scratch_capacity, stream->scratch_count + 1,
                                      sizeof *stream->scratch);
        stream->scratch = array;
        TSR__TRY(status);
        tsr__buffer *buffer;
        TSR__TRY(create(stream, size_bytes, &buffer));
        drop_one_unused(stream);
        entry = &stream->scratch[stream->scratch_count++];
        *entry = (tsr__scratch_buffer){.buffer = buffer};
    }
    entry->lent_serial = stream->serial;
    *out = entry->buffer;
    return TSR_OK;
}

tsr_status tsr__stream_scratch(tsr_stream *stream, uint64_t size_bytes, tsr__buffer **out)
{
    TSR__TRY(tsr__device_check(stream->device));
    return lend(stream, size_bytes, smallest_fit(stream, size_bytes, false), out);
}

static tsr__scratch_buffer *entry_of(tsr_stream *stream, const tsr__buffer *buffer)
{
    for (size_t i = 0; i < stream->scratch_count; i++)
        if (stream->scratch[i].buffer == buffer)
            return &stream->scratch[i];
    return NULL;
}

tsr_status tsr__stream_keep_scratch(tsr_stream *stream, uint64_t size_bytes, tsr__buffer **out)
{
    TSR__TRY(tsr__stream_scratch(stream, size_bytes, out));
    entry_of(stream, *out)->kept = true;
    return TSR_OK;
}

void tsr__stream_return_scratch(tsr_stream *stream, const tsr__buffer *buffer)
{
    tsr__scratch_buffer *entry = entry_of(stream, buffer);
    if (entry)
        entry->kept = false;
}

tsr_status tsr__stream_idle_scratch(tsr_stream *stream, uint64_t size_bytes, tsr__buffer **out)
{
    TSR__TRY(tsr__device_check(stream->device));
    tsr__scratch_buffer *idle = smallest_fit(stream, size_bytes, true);
    *out = NULL;
    /* If there is a buffer of this size but recorded work uses it, *out stays NULL and the caller
     * does without. Otherwise each operation in flight could get a buffer of its own. */
    if (!idle && smallest_fit(stream, size_bytes, false))
        return TSR_OK;
    return lend(stream, size_bytes, idle, out);
}

/* Copies the data behind what earlier calls have copied to the buffer stream->posts. If that buffer
 * is full, a new one replaces it. The batches that read the old one keep references to it, so its
 * memory is free when they are complete. */
tsr_status tsr__stream_post(tsr_stream *stream, const void *data, uint64_t size_bytes,
                            tsr__access *out)
{
    const uint64_t reserved = tsr__align_up_u64(size_bytes, POST_ALIGN);
    *out = (tsr__access){0};
    TSR__TRY(tsr__device_check(stream->device));
    if (size_bytes > POSTS_BYTES ||
        !(stream->device->wants_mapping || stream->device->wants_direct_uploads))
        return TSR_OK;
    if (stream->mode != TSR__STREAM_SINGLE) {
        if (reserved > POSTS_BYTES - stream->atomic_post_bytes)
            return TSR_OK;
        stream->atomic_post_bytes += reserved;
    }
    if (!stream->posts || reserved > POSTS_BYTES - stream->post_used_bytes) {
        tsr__buffer *buffer;
        TSR__TRY(create(stream, POSTS_BYTES, &buffer));
        tsr__buffer_release(stream->posts);
        stream->posts = buffer;
        stream->post_used_bytes = 0;
    }
    tsr__buffer *posts = stream->posts;
    uint8_t *memory = posts->host ? posts->host : posts->direct;
    if (!memory) /* the host cannot write device memory, or mapping it has failed */
        return TSR_OK;
    const uint64_t at = stream->post_used_bytes;
    memcpy(memory + at, data, size_bytes);
    stream->post_used_bytes += reserved;
    *out = (tsr__access){posts, at, at + size_bytes, false};
    return TSR_OK;
}

void tsr__stream_begin_preflight(tsr_stream *stream)
{
    stream->preflight_serial = stream->serial;
    stream->preflight_posts = stream->posts;
    stream->preflight_post_bytes = stream->post_used_bytes;
    stream->atomic_post_bytes = 0;
}

void tsr__stream_scratch_after_preflight(tsr_stream *stream)
{
    /* No command reads what the preflight has posted. The operation posts it again, to the same
     * places or, if the preflight has begun a new buffer, from that buffer's first byte on. */
    stream->post_used_bytes =
        stream->posts == stream->preflight_posts ? stream->preflight_post_bytes : 0;
    stream->atomic_post_bytes = 0;
    for (size_t i = 0; i < stream->scratch_count; i++)
        if (stream->scratch[i].lent_serial == stream->preflight_serial)
            stream->scratch[i].lent_serial = stream->serial;
}

void tsr__stream_scratch_finish(tsr_stream *stream)
{
    for (size_t i = 0; i < stream->scratch_count; i++)
        tsr__buffer_release(stream->scratch[i].buffer);
    tsr__buffer_release(stream->posts);
    stream->posts = NULL;
    tsr__free(stream->scratch);
    stream->scratch = NULL;
    stream->scratch_count = 0;
}
