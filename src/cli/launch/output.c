/* Passes on the output of ranks line by line. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/launch/launch.h"
#include "cli/lib/memory.h"

#define READ_BYTES ((size_t)65536)
#define MAX_LINE ((size_t)1 << 20) /* longer lines are divided */

/* The bytes that one call of write() gets. Usually these are as many complete lines as fit into
 * PIPE_BUF: the kernel writes that many bytes to a pipe without output of other processes in
 * between. A line longer than PIPE_BUF is written by a call of its own. */
typedef struct block {
    char *bytes;
    size_t used, capacity;
} block;

static bool write_block(const launch_stream *stream, launch_job *job, block *from)
{
    bool stalled = false;
    for (size_t done = 0; done < from->used;) {
        if (!launch_job_wait_to_write(job, stream->to, stalled))
            return false;
        launch_interrupt_calls(true);
        ssize_t written = write(stream->to, from->bytes + done, from->used - done);
        launch_interrupt_calls(false);
        stalled = written < 0 && (errno == EINTR || errno == EAGAIN);
        if (written < 0 && !stalled)
            return false;
        done += stalled ? 0 : (size_t)written;
    }
    from->used = 0;
    return true;
}

static bool add_line(const launch_stream *stream, launch_job *job, block *to, const char *line,
                     size_t length)
{
    size_t prefix = strlen(stream->prefix), more = prefix + length + 1;
    if (stream->to == 2 && !launch_messages_pass(&job->messages, stream->rank, line, length))
        return true;
    if (to->used + more > PIPE_BUF && !write_block(stream, job, to))
        return false;
    if (to->used + more > to->capacity) {
        to->capacity = more > PIPE_BUF ? more : PIPE_BUF;
        to->bytes = cli_resize(to->bytes, to->capacity, 1);
    }
    char *end = to->bytes + to->used;
    memcpy(end, stream->prefix, prefix);
    memcpy(end + prefix, line, length);
    end[prefix + length] = '\n';
    to->used += more;
    return true;
}

/* Writes the lines in stream->line that end at offset `from` or later. If `last` is true, also
 * writes an incomplete line at the end. */
static bool pass_lines(launch_stream *stream, launch_job *job, size_t from, bool last)
{
    block lines = {0};
    size_t start = 0;
    bool ok = true;
    for (size_t i = from; i < stream->used && ok; i++)
        if (stream->line[i] == '\n' || i - start == MAX_LINE) {
            ok = add_line(stream, job, &lines, stream->line + start, i - start);
            start = stream->line[i] == '\n' ? i + 1 : i;
        }
    stream->used -= start;
    memmove(stream->line, stream->line + start, stream->used);
    if (last && stream->used > 0)
        ok = ok && add_line(stream, job, &lines, stream->line, stream->used);
    ok = ok && write_block(stream, job, &lines);
    free(lines.bytes);
    return ok;
}

bool launch_stream_pass(launch_stream *stream, launch_job *job, bool last)
{
    if (stream->capacity - stream->used < READ_BYTES) {
        stream->capacity = stream->used + 2 * READ_BYTES;
        stream->line = cli_resize(stream->line, stream->capacity, 1);
    }
    ssize_t got;
    do
        got = read(stream->from, stream->line + stream->used, READ_BYTES);
    while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EAGAIN && !last)
        return true;
    if (got > 0) {
        size_t from = stream->used;
        stream->used += (size_t)got;
        return pass_lines(stream, job, from, false);
    }
    bool ok = pass_lines(stream, job, stream->used, true);
    launch_stream_finish(stream);
    return ok;
}

void launch_stream_finish(launch_stream *stream)
{
    if (stream->from >= 0)
        close(stream->from);
    free(stream->line);
    stream->from = -1;
    stream->line = NULL;
    stream->used = stream->capacity = 0;
}
