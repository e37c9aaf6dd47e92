/* What ranks print, line by line. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cli/launch.h"
#include "cli/memory.h"

#define PIECE ((size_t)65536)
#define LONGEST_LINE ((size_t)1 << 20) /* longer ones are cut in two */

/* The first of some pieces, as many bytes of them as a pipe that takes anything takes at once: more
 * would wait for a reader, and the launcher would hear no signal. */
static ssize_t write_some(int to, const struct iovec *pieces, int count)
{
    struct iovec some[3];
    size_t room = PIPE_BUF;
    int used = 0;
    for (; used < count && room > 0; used++) {
        some[used] = pieces[used];
        if (some[used].iov_len > room)
            some[used].iov_len = room;
        room -= some[used].iov_len;
    }
    return writev(to, some, used);
}

/* Prefix, line and its end in one call where a pipe takes them as one, so that no other program's
 * output comes between them. */
static bool write_line(const launch_stream *stream, launch_job *job, const char *line,
                       size_t length)
{
    const char *texts[] = {stream->prefix, line, "\n"};
    struct iovec pieces[3] = {
        {.iov_len = strlen(stream->prefix)}, {.iov_len = length}, {.iov_len = 1}};
    for (int i = 0; i < 3; i++) /* writev does not write to them */
        memcpy(&pieces[i].iov_base, &texts[i], sizeof texts[i]);
    for (int at = 0; at < 3;) {
        if (!launch_wait_to_write(job, stream->to))
            return false;
        ssize_t written = write_some(stream->to, pieces + at, 3 - at);
        if (written < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (written < 0)
            return false;
        size_t left = (size_t)written;
        while (at < 3 && left >= pieces[at].iov_len)
            left -= pieces[at++].iov_len;
        if (at < 3) {
            pieces[at].iov_base = (char *)pieces[at].iov_base + left;
            pieces[at].iov_len -= left;
        }
    }
    return true;
}

static bool pass_lines(launch_stream *stream, launch_job *job, size_t from)
{
    size_t start = 0;
    bool well = true;
    for (size_t i = from; i < stream->used && well; i++)
        if (stream->line[i] == '\n' || i - start == LONGEST_LINE) {
            well = write_line(stream, job, stream->line + start, i - start);
            start = stream->line[i] == '\n' ? i + 1 : i;
        }
    memmove(stream->line, stream->line + start, stream->used - start);
    stream->used -= start;
    return well;
}

bool launch_stream_pass(launch_stream *stream, launch_job *job)
{
    if (stream->capacity - stream->used < PIECE) {
        stream->capacity = stream->used + 2 * PIECE;
        stream->line = cli_resize(stream->line, stream->capacity, 1);
    }
    ssize_t got;
    do
        got = read(stream->from, stream->line + stream->used, PIECE);
    while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EAGAIN)
        return true;
    if (got > 0) {
        size_t from = stream->used;
        stream->used += (size_t)got;
        return pass_lines(stream, job, from);
    }
    bool well = stream->used == 0 || write_line(stream, job, stream->line, stream->used);
    launch_stream_finish(stream);
    return well;
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
