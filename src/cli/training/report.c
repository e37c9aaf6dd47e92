/* What a run reports: progress on standard error, a log in lines of JSON, a picture of the losses.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/lib/memory.h"
#include "cli/training/run.h"
#include "common/curve.h"
#include "tool_seam.h"

double training_seconds(void)
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
    char piece[512];
    int64_t step;
    long end = 0;
    bool starts_line = true, is_kept = true;
    FILE *file = fopen(path, "r+");
    if (file == NULL)
        return errno == ENOENT;
    while (is_kept && fgets(piece, sizeof piece, file) != NULL) {
        if (starts_line)
            is_kept = (sscanf(piece, "{\"step\": %" SCNd64, &step) == 1 ||
                       sscanf(piece, "{\"evaluated\": %" SCNd64, &step) == 1) &&
                      step < first_step;
        starts_line = strchr(piece, '\n') != NULL;
        if (is_kept && starts_line)
            end = ftell(file);
    }
    const bool is_cut = end >= 0 && ftruncate(fileno(file), end) == 0;
    fclose(file);
    return is_cut;
}

tsr_status training_log_open(training_run *r)
{
    const char *path = training_chosen.log;
    if (path == NULL || r->job.rank != 0 || r->log != NULL)
        return TSR_OK;
    const bool is_continued = r->step > 0;
    if (!is_continued || cut_log(path, r->step))
        r->log = fopen(path, is_continued ? "a" : "w");
    if (r->log == NULL)
        return training_fail("%s: %s", path, strerror(errno));
    setvbuf(r->log, NULL, _IOLBF, 0);
    return TSR_OK;
}

tsr_status training_log_close(training_run *r)
{
    FILE *log = r->log;
    r->log = NULL;
    if (log == NULL || (ferror(log) | fclose(log)) == 0)
        return TSR_OK;
    return training_fail("%s: the log could not be written", training_chosen.log);
}

/* History -------------------------------------------------------------------------------------- */

static void add_point(training_points *points, int64_t step, double loss)
{
    if (points->count == points->capacity) {
        points->capacity = points->capacity > 0 ? 2 * points->capacity : 256;
        points->x = cli_resize(points->x, (size_t)points->capacity, sizeof *points->x);
        points->loss = cli_resize(points->loss, (size_t)points->capacity, sizeof *points->loss);
    }
    points->x[points->count] = (double)step;
    points->loss[points->count++] = loss;
}

tsr_status training_draw(const training_run *r)
{
    const char *path = training_chosen.curve;
    if (path == NULL || r->job.rank != 0)
        return TSR_OK;
    char program[32];
    snprintf(program, sizeof program, "tessera: %s", training_name);
    const bool good = curve_write(
        program, path,
        &(curve_params){.title = "Loss",
                        .unit = "step",
                        .lines = {{"training", r->trained.count, r->trained.x, r->trained.loss},
                                  {"held out", r->tested.count, r->tested.x, r->tested.loss}}});
    return good ? TSR_OK : training_fail("%s: the picture could not be written", path);
}

void training_points_free(training_points *points)
{
    free(points->x);
    free(points->loss);
    *points = (training_points){0};
}

/* Progress ------------------------------------------------------------------------------------- */

#define LINES 20          /* of progress, if standard error is no terminal */
#define REDRAW_SECONDS .1 /* between two states of the line on a terminal */

/* Returns the mean time of the last steps in seconds, or 0 if none was measured. */
static double mean_seconds(const training_run *r)
{
    const int count = r->timed < TRAINING_RECENT ? (int)r->timed : TRAINING_RECENT;
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += r->seconds[i];
    return count > 0 ? sum / count : 0;
}

static void print_progress(training_run *r)
{
    const training_options *o = &training_chosen;
    const double each = mean_seconds(r), now = training_seconds();
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

/* The number of tokens of a step that each expert of each layer got. */
static void print_loads(FILE *file, const training_model *m)
{
    fprintf(file, ", \"aux\": %.9g, \"load\": [", m->auxiliary);
    for (int l = 0; l < m->config->layers; l++) {
        fprintf(file, l > 0 ? ", [" : "[");
        for (int64_t e = 0; e < m->experts; e++)
            fprintf(file, e > 0 ? ", %.0f" : "%.0f", m->loads[l * m->experts + e]);
        fprintf(file, "]");
    }
    fprintf(file, "]");
}

void training_report_step(training_run *r, double seconds)
{
    if (seconds > 0)
        r->seconds[r->timed++ % TRAINING_RECENT] = seconds;
    if (r->job.rank != 0)
        return;
    add_point(&r->trained, r->step, r->loss);
    const uint64_t memory = tsr__device_most_used(r->job.device);
    if (r->log != NULL)
        fprintf(r->log,
                "{\"step\": %" PRId64 ", \"loss\": %.9g, \"grad_norm\": %.9g, "
                "\"learning_rate\": %.9g, \"tokens\": %" PRId64 ", \"seconds\": %.6g, "
                "\"memory_bytes\": %" PRIu64 ", \"ranks\": %d",
                r->step - 1, r->loss, r->norm, r->rate, r->tokens, seconds, memory, r->job.ranks);
    if (r->log != NULL && r->model.experts > 0)
        print_loads(r->log, &r->model);
    if (r->log != NULL)
        fputs("}\n", r->log);
    print_progress(r);
}

void training_report_evaluation(training_run *r, double loss)
{
    if (r->job.rank != 0)
        return;
    add_point(&r->tested, r->step, loss);
    if (r->log != NULL)
        fprintf(r->log, "{\"evaluated\": %" PRId64 ", \"held_out_loss\": %.9g}\n", r->step, loss);
    fprintf(stderr, "%sstep %" PRId64 "  held out %.4f%s\n", isatty(STDERR_FILENO) ? "\r" : "",
            r->step, loss, isatty(STDERR_FILENO) ? "\033[K" : "");
}

void training_report_later(training_run *r)
{
    const bool compiles = r->step - 1 == r->compiling_step;
    if (r->unreported)
        training_report_step(r, compiles ? 0 : training_seconds() - r->started);
    r->unreported = false;
}
