#include "bench/harness/progress.h"

#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "bench/harness/clock.h"

#define BAR 20
#define NARROWEST 20

void bench_progress_begin(bench_progress *progress)
{
    *progress = (bench_progress){.shown = isatty(STDERR_FILENO), .start_ns = bench_now_ns()};
}

void bench_progress_step(bench_progress *progress, const char *where)
{
    progress->step++;
    snprintf(progress->where, sizeof progress->where, "%s", where);
}

/* Returns the width of the line. It must be narrower than the terminal, because a line that wraps
 * could not be overwritten. */
static int columns(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < NARROWEST)
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

void bench_progress_show(const bench_progress *progress, const char *what)
{
    char line[512], bar[BAR + 1];
    if (!progress->shown)
        return;
    if (progress->steps > 0) {
        int done = BAR * (progress->step - 1) / progress->steps;
        for (int i = 0; i < BAR; i++)
            bar[i] = i < done ? '#' : '.';
        bar[BAR] = '\0';
        snprintf(line, sizeof line, "[%s] %d of %d, %.0f s  %s%s%s", bar, progress->step,
                 progress->steps, (bench_now_ns() - progress->start_ns) / 1e9, progress->where,
                 progress->where[0] != '\0' ? ": " : "", what);
    } else {
        snprintf(line, sizeof line, "measuring %s", what);
    }
    cut(line, columns());
    fprintf(stderr, "\r\033[K%s", line);
    fflush(stderr);
}

void bench_progress_end(const bench_progress *progress)
{
    if (progress->shown)
        fputs("\r\033[K", stderr);
}
