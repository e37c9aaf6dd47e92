/* What a run reports: progress on standard error, a log in lines of JSON, a picture of the losses.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/finetune/run.h"
#include "cli/lib/memory.h"
#include "common/curve.h"
#include "tool_seam.h"

double finetune_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The log -------------------------------------------------------------------------------------- */

/* Removes the lines of steps that the run makes again. Returns false, with errno, on failure. A
 * file that does not exist has none. */
static bool cut_log(const char *path, int64_t first_step)
{
    char line[512];
    int64_t step;
    long end = 0;
    FILE *file = fopen(path, "r+");
    if (file == NULL)
        return errno == ENOENT;
    while (fgets(line, sizeof line, file) != NULL && strchr(line, '\n') != NULL &&
           ((sscanf(line, "{\"step\": %" SCNd64, &step) == 1 && step < first_step) ||
            (sscanf(line, "{\"evaluated\": %" SCNd64, &step) == 1 && step < first_step)))
        end = ftell(file);
    const bool is_cut = end >= 0 && ftruncate(fileno(file), end) == 0;
    fclose(file);
    return is_cut;
}

tsr_status finetune_log_open(finetune_run *r)
{
    const char *path = finetune_chosen.log;
    if (path == NULL || r->job.rank != 0 || r->log != NULL)
        return TSR_OK;
    const bool is_continued = r->step > 0;
    if (!is_continued || cut_log(path, r->step))
        r->log = fopen(path, is_continued ? "a" : "w");
    if (r->log == NULL)
        return finetune_fail("%s: %s", path, strerror(errno));
    setvbuf(r->log, NULL, _IOLBF, 0);
    return TSR_OK;
}

tsr_status finetune_log_close(finetune_run *r)
{
    FILE *log = r->log;
    r->log = NULL;
    if (log == NULL || (ferror(log) | fclose(log)) == 0)
        return TSR_OK;
    return finetune_fail("%s: the log could not be written", finetune_chosen.log);
}

/* History -------------------------------------------------------------------------------------- */

static void add_point(finetune_points *points, int64_t step, double loss)
{
    if (points->count == points->capacity) {
        points->capacity = points->capacity > 0 ? 2 * points->capacity : 256;
        points->x = cli_resize(points->x, (size_t)points->capacity, sizeof *points->x);
        points->loss = cli_resize(points->loss, (size_t)points->capacity, sizeof *points->loss);
    }
    points->x[points->count] = (double)step;
    points->loss[points->count++] = loss;
}

tsr_status finetune_draw(const finetune_run *r)
{
    const char *path = finetune_chosen.curve;
    if (path == NULL || r->job.rank != 0)
        return TSR_OK;
    const bool good = curve_write(
        "tessera: finetune", path,
        &(curve_params){.title = "Loss",
                        .unit = "step",
                        .lines = {{"training", r->trained.count, r->trained.x, r->trained.loss},
                                  {"held out", r->tested.count, r->tested.x, r->tested.loss}}});
    return good ? TSR_OK : finetune_fail("%s: the picture could not be written", path);
}

void finetune_points_free(finetune_points *points)
{
    free(points->x);
    free(points->loss);
    *points = (finetune_points){0};
}

/* Progress ------------------------------------------------------------------------------------- */

#define LINES 20          /* of progress, if standard error is no terminal */
#define REDRAW_SECONDS .1 /* between two states of the line on a terminal */

/* Returns the mean time of the last steps in seconds, or 0 if none was measured. */
static double mean_seconds(const finetune_run *r)
{
    const int count = r->timed < FINETUNE_RECENT ? (int)r->timed : FINETUNE_RECENT;
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += r->seconds[i];
    return count > 0 ? sum / count : 0;
}

static void print_progress(finetune_run *r)
{
    const finetune_options *o = &finetune_chosen;
    const double each = mean_seconds(r), now = finetune_seconds();
    const bool live = isatty(STDERR_FILENO) != 0;
    const int64_t every = o->steps / LINES > 0 ? o->steps / LINES : 1;
    char held_out[40] = "", pace[80] = "";
    if (live ? now - r->shown < REDRAW_SECONDS && r->step < o->steps
             : r->step % every != 0 && r->step != o->steps)
        return;
    r->shown = now;
    if (r->tested.count > 0)
        snprintf(held_out, sizeof held_out, "  held out %.4f", r->tested.loss[r->tested.count - 1]);
    if (each > 0) {
        const int64_t left = (int64_t)ceil(each * (double)(o->steps - r->step));
        snprintf(pace, sizeof pace, "  %.0f tokens/s  %" PRId64 ":%02" PRId64 " left",
                 (double)r->tokens / each, left / 60, left % 60);
    }
    fprintf(stderr, "%sstep %" PRId64 " of %" PRId64 "  loss %.4f%s%s%s", live ? "\r" : "", r->step,
            o->steps, r->loss, held_out, pace, live ? "\033[K" : "\n");
    if (live && r->step == o->steps)
        fputs("\n", stderr);
}

void finetune_report_step(finetune_run *r, double seconds)
{
    if (seconds > 0)
        r->seconds[r->timed++ % FINETUNE_RECENT] = seconds;
    if (r->job.rank != 0)
        return;
    add_point(&r->trained, r->step, r->loss);
    const uint64_t memory = tsr__device_most_used(r->job.device);
    if (r->log != NULL)
        fprintf(r->log,
                "{\"step\": %" PRId64 ", \"loss\": %.9g, \"grad_norm\": %.9g, "
                "\"learning_rate\": %.9g, \"tokens\": %" PRId64 ", \"seconds\": %.6g, "
                "\"memory_bytes\": %" PRIu64 ", \"ranks\": %d}\n",
                r->step - 1, r->loss, r->norm, r->rate, r->tokens, seconds, memory, r->job.ranks);
    print_progress(r);
}

void finetune_report_evaluation(finetune_run *r, double loss)
{
    if (r->job.rank != 0)
        return;
    add_point(&r->tested, r->step, loss);
    if (r->log != NULL)
        fprintf(r->log, "{\"evaluated\": %" PRId64 ", \"held_out_loss\": %.9g}\n", r->step, loss);
    fprintf(stderr, "%sstep %" PRId64 "  held out %.4f%s\n", isatty(STDERR_FILENO) ? "\r" : "",
            r->step, loss, isatty(STDERR_FILENO) ? "\033[K" : "");
}

void finetune_report_later(finetune_run *r)
{
    const bool compiles = r->step - 1 == r->compiling_step;
    if (r->unreported)
        finetune_report_step(r, compiles ? 0 : finetune_seconds() - r->started);
    r->unreported = false;
}
