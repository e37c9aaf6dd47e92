/* Counts and times a stream's commands (profile.h). All memory is allocated when counting begins,
 * because recording a command must not fail. */
#include "gpu/stream/profile.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "gpu/stream/state.h"

/* The largest number of commands that are timed. */
#define TIMED_COMMANDS 16384

struct tsr__profiling {
    tsr__profile counts;
    uint64_t barriers;    /* tsr_stream.barriers after the last command of the stream */
    uint64_t submissions; /* before the first command */
    VkQueryPool pool;     /* two timestamps for each timed command; or NULL */
    uint32_t timed;
    bool resets; /* the pool is reset before the next command */
    uint8_t kernel_of[TIMED_COMMANDS];
};

static tsr_status begin_times(tsr_stream *stream, tsr__profiling *p)
{
    tsr_device *device = stream->device;
    const VkQueryPoolCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
        .queryType = VK_QUERY_TYPE_TIMESTAMP,
        .queryCount = 2 * TIMED_COMMANDS,
    };
    if (device->timestamp_bits == 0 || device->info.timestamp_period_ns <= 0)
        return TSR_OK;
    const VkResult result =
        TSR__VK(&device->vk, CreateQueryPool, device->handle, &info, NULL, &p->pool);
    if (result < 0) {
        p->pool = VK_NULL_HANDLE;
        return tsr__device_fail(device, result, "vkCreateQueryPool");
    }
    p->counts.has_times = p->resets = true;
    return TSR_OK;
}

void tsr__stream_profile_finish(tsr_stream *stream)
{
    tsr__profiling *p = stream->profiling;
    if (!p || stream->owner)
        return;
    if (p->pool)
        stream->device->vk.DestroyQueryPool(stream->device->handle, p->pool, NULL);
    tsr__free(p);
    stream->profiling = NULL;
    if (stream->transfers)
        stream->transfers->profiling = NULL;
}

static uint64_t submissions_of(const tsr_stream *stream)
{
    return stream->submissions + (stream->transfers ? stream->transfers->submissions : 0);
}

tsr_status tsr__stream_profile_begin(tsr_stream *stream)
{
    TSR__REQUIRE(stream && !stream->profiling, "stream_profile_begin: %s",
                 stream ? "there is no stream_profile_end since the last one" : "stream is NULL");
    TSR__TRY(tsr_stream_wait(stream));
    tsr__profiling *p = tsr__calloc(1, sizeof *p);
    if (!p)
        return TSR_ERR_NO_MEMORY;
    const tsr_status status = begin_times(stream, p);
    if (status != TSR_OK) {
        tsr__free(p);
        return status;
    }
    stream->profiling = p;
    if (stream->transfers)
        stream->transfers->profiling = p;
    p->barriers = stream->barriers;
    p->submissions = submissions_of(stream);
    return TSR_OK;
}

static bool uses_matrix_units(int shader)
{
    switch (shader) {
    case TSR__SHADER_MATMUL_COOPMAT:
    case TSR__SHADER_MATMUL_COOPMAT_BF16:
    case TSR__SHADER_MATMUL_COOPMAT2:
    case TSR__SHADER_MATMUL_COOPMAT2_BF16:
    case TSR__SHADER_MATMUL_GROUPED_COOPMAT:
    case TSR__SHADER_MATMUL_GROUPED_COOPMAT_BF16:
    case TSR__SHADER_ATTENTION_COOPMAT:
    case TSR__SHADER_ATTENTION_COOPMAT_BF16:
    case TSR__SHADER_DELTA_SCAN_COOPMAT:
        return true;
    default:
        return false;
    }
}

/* Returns the kernel with this name, which is added if it is new. If there are too many, the last
 * one stands for all others. */
static int kernel_of(tsr__profile *counts, const char *name, int shader)
{
    int i = 0;
    while (i < counts->kernel_count &&
           strncmp(counts->kernels[i].name, name, sizeof counts->kernels[i].name - 1) != 0)
        i++;
    if (i == TSR__PROFILE_KERNELS) {
        snprintf(counts->kernels[i - 1].name, sizeof counts->kernels[i - 1].name, "others");
        return i - 1;
    }
    if (i == counts->kernel_count) {
        snprintf(counts->kernels[i].name, sizeof counts->kernels[i].name, "%s", name);
        counts->kernels[i].matrix_units = uses_matrix_units(shader);
        counts->kernel_count++;
    }
    return i;
}

/* Writes a timestamp of the command that is recorded, if there is room. TOP_OF_PIPE comes after the
 * barriers before the command on drivers whose queues stop at these. Where they do not,
 * read_times() begins the command at the end of the commands before it. */
static void write_time(tsr_stream *stream, bool end)
{
    const tsr__profiling *p = stream->profiling;
    if (!p->pool || stream->owner || p->timed == TIMED_COMMANDS)
        return;
    stream->device->vk.CmdWriteTimestamp(stream->open->commands,
                                         end ? VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT
                                             : VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT,
                                         p->pool, 2 * p->timed + end);
}

void tsr__stream_profile_command(tsr_stream *stream, const char *name, const tsr__access *access,
                                 int count, const tsr__dispatch *dispatch)
{
    tsr__profiling *p = stream->profiling;
    if (!p)
        return;
    double read = 0, written = 0;
    for (int i = 0; i < count; i++)
        *(access[i].write ? &written : &read) +=
            (double)(access[i].end_bytes - access[i].begin_bytes);
    const int index = kernel_of(&p->counts, name, dispatch ? (int)dispatch->shader : -1);
    tsr__profile_kernel *kernel = &p->counts.kernels[index];
    kernel->commands++;
    kernel->read_bytes += dispatch && dispatch->read_bytes > 0 ? dispatch->read_bytes : read;
    kernel->written_bytes +=
        dispatch && dispatch->written_bytes > 0 ? dispatch->written_bytes : written;
    kernel->operations += dispatch ? 2 * dispatch->multiply_adds : 0;
    if (stream->owner) {
        kernel->barriers += stream->barriers - stream->profiled_barriers;
        stream->profiled_barriers = stream->barriers;
        return;
    }
    kernel->barriers += stream->barriers - p->barriers;
    p->barriers = stream->barriers;
    if (p->resets)
        stream->device->vk.CmdResetQueryPool(stream->open->commands, p->pool, 0,
                                             2 * TIMED_COMMANDS);
    p->resets = false;
    if (p->timed < TIMED_COMMANDS)
        p->kernel_of[p->timed] = (uint8_t)index;
    write_time(stream, false);
}

void tsr__stream_profile_recorded(tsr_stream *stream)
{
    tsr__profiling *p = stream->profiling;
    if (!p || stream->owner)
        return;
    write_time(stream, true);
    if (p->pool && p->timed < TIMED_COMMANDS)
        p->timed++;
}

static tsr_status read_times(tsr_stream *stream, tsr__profiling *p)
{
    tsr_device *device = stream->device;
    if (!p->pool || p->timed == 0)
        return TSR_OK;
    uint64_t *ticks = tsr__calloc(2 * (size_t)p->timed, sizeof *ticks);
    if (!ticks)
        return TSR_ERR_NO_MEMORY;
    const VkResult result =
        TSR__VK(&device->vk, GetQueryPoolResults, device->handle, p->pool, 0, 2 * p->timed,
                2 * (size_t)p->timed * sizeof *ticks, ticks, sizeof *ticks,
                VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT);
    if (result < 0) {
        tsr__free(ticks);
        return tsr__device_fail(device, result, "vkGetQueryPoolResults");
    }
    const uint64_t mask =
        device->timestamp_bits >= 64 ? UINT64_MAX : (UINT64_C(1) << device->timestamp_bits) - 1;
    const double period = (double)device->info.timestamp_period_ns;
    double last_end = 0;
    for (uint32_t i = 0; i < p->timed; i++) {
        double begin = (double)((ticks[2 * (size_t)i] - ticks[0]) & mask) * period;
        const double end = (double)((ticks[2 * (size_t)i + 1] - ticks[0]) & mask) * period;
        if (begin > last_end)
            p->counts.gaps_ns += begin - last_end;
        else
            begin = last_end;
        tsr__profile_kernel *kernel = &p->counts.kernels[p->kernel_of[i]];
        kernel->timed++;
        if (end > begin) {
            kernel->ns += end - begin;
            last_end = end;
        }
    }
    p->counts.elapsed_ns = last_end;
    tsr__free(ticks);
    return TSR_OK;
}

tsr_status tsr__stream_profile_end(tsr_stream *stream, tsr__profile *out)
{
    TSR__REQUIRE(stream && out && stream->profiling, "stream_profile_end: %s",
                 !stream ? "stream is NULL"
                 : !out  ? "out is NULL"
                         : "there is no stream_profile_begin before it");
    tsr_status status = tsr_stream_wait(stream);
    if (status == TSR_OK)
        status = read_times(stream, stream->profiling);
    if (status == TSR_OK) {
        *out = stream->profiling->counts;
        out->batches = submissions_of(stream) - stream->profiling->submissions;
    }
    /* On failure, the device may still write timestamps. They stay until the stream ends. */
    if (status == TSR_OK)
        tsr__stream_profile_finish(stream);
    return status;
}
