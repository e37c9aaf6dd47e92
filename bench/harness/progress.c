#include "bench/harness/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include "bench/harness/clock.h"

#define BAR 20
#define NARROWEST 20
/* The shortest time between two lines, at a terminal and in a file. */
#define TERMINAL_NS 1e8
#define FILE_NS 5e9
/* A run that is expected to take this long says so at once, also in a file. */
#define LONG_SECONDS 10.0

void bench_progress_begin(bench_progress *progress, FILE *out, bool is_terminal)
{
    const double now = bench_now_ns();
    *progress = (bench_progress){.out = out,
                                 .is_terminal = is_terminal,
                                 .start_ns = now,
                                 .line_ns = now,
                                 .step_ns = now,
                                 .is_awaited = is_terminal};
}

void bench_progress_step(bench_progress *progress, const char *where)
{
    const double now = bench_now_ns();
    if (progress->step > 0)
        progress->recent_ns[progress->step % BENCH_PROGRESS_RECENT] = now - progress->step_ns;
    progress->step++;
    progress->step_ns = now;
    progress->is_awaited = progress->is_terminal;
    snprintf(progress->where, sizeof progress->where, "%s", where);
}

void bench_progress_expect(bench_progress *progress, double seconds)
{
    progress->is_awaited |= progress->end_ns == 0 && seconds >= LONG_SECONDS;
    progress->end_ns = bench_now_ns() + seconds * 1e9;
}

double bench_progress_left(const bench_progress *progress, double now_ns)
{
    if (progress->steps == 0)
        return progress->end_ns == 0        ? -1
               : progress->end_ns <= now_ns ? 0
                                            : (progress->end_ns - now_ns) * 1e-9;
    const int done = progress->step - 1,
              count = done < BENCH_PROGRESS_RECENT ? done : BENCH_PROGRESS_RECENT;
    double sum = 0;
    if (count <= 0)
        return -1;
    for (int i = 0; i < count; i++)
        sum += progress->recent_ns[(progress->step - 1 - i) % BENCH_PROGRESS_RECENT];
    const double left = sum / count * (progress->steps - done) - (now_ns - progress->step_ns);
    return left > 0 ? left * 1e-9 : 0;
}

/* Returns the width of the line. It must be narrower than the terminal, because a line that wraps
 * could not be overwritten. */
static int columns(FILE *out)
{
    struct winsize size;
    if (ioctl(fileno(out), TIOCGWINSZ, &size) != 0 || size.ws_col < NARROWEST)
        return 79;
    return size.ws_col - 1;
}

/* Cuts a text to `width` columns, between characters of UTF-8:
 * continuation bytes take no column. */
static void cut(char *text, int width)
{
    for (; *text != '\0'; text++)
        if (((unsigned char)*text & 0xc0) != 0x80 && width-- == 0) {
            *text = '\0';
            return;
        }
}

/* Writes the time that is left, such as ", about 3 min left", or "" if it is not known. */
static void write_left(double seconds, char *text, size_t size)
{
    if (seconds < 0)
        *text = '\0';
    else if (seconds < 90)
        snprintf(text, size, ", about %.0f s left", seconds);
    else if (seconds < 90 * 60)
        snprintf(text, size, ", about %.0f min left", seconds / 60);
    else
        snprintf(text, size, ", about %.1f h left", seconds / 3600);
}

/* Writes how far the run is, such as "[####....] 3 of 8, 12 s, about 20 s left". In a file there is
 * no bar. */
static void write_state(const bench_progress *progress, double now_ns, char *text, size_t size)
{
    char bar[BAR + 4] = "", steps[40] = "", left[64];
    if (progress->steps > 0) {
        const int done = BAR * (progress->step - 1) / progress->steps;
        for (int i = 0; i < BAR; i++)
            bar[i + 1] = i < done ? '#' : '.';
        bar[0] = '[';
        bar[BAR + 1] = ']';
        bar[BAR + 2] = ' ';
        snprintf(steps, sizeof steps, "%d of %d, ", progress->step, progress->steps);
    }
    write_left(bench_progress_left(progress, now_ns), left, sizeof left);
    snprintf(text, size, "%s%s%.0f s%s", progress->is_terminal ? bar : "", steps,
             (now_ns - progress->start_ns) / 1e9, left);
}

void bench_progress_show(bench_progress *progress, const char *what)
{
    const double now = bench_now_ns();
    char line[512], state[128];
    if (progress->out == NULL ||
        (!progress->is_awaited &&
         now - progress->line_ns < (progress->is_terminal ? TERMINAL_NS : FILE_NS)))
        return;
    progress->line_ns = now;
    progress->is_awaited = false;
    write_state(progress, now, state, sizeof state);
    snprintf(line, sizeof line, "%s  %s%s%s", state, progress->where,
             progress->where[0] != '\0' ? ": " : "", what);
    if (progress->is_terminal) {
        cut(line, columns(progress->out));
        fprintf(progress->out, "\r\033[K%s", line);
    } else {
        fprintf(progress->out, "progress: %s\n", line);
    }
    fflush(progress->out);
}

void bench_progress_end(const bench_progress *progress)
{
    if (progress->out != NULL && progress->is_terminal)
        fputs("\r\033[K", progress->out);
}
