/* Trains a small language model on the characters of a text, over any number of processes. Its
 * losses are those that PyTorch recorded (tests/data/training). `tessera train` is the same with
 * all that a long training needs: tokenizers, checkpoints, lost ranks, given models. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

#define HELD_OUT_BATCHES 20

typedef struct run {
    gpt_options options;
    int32_t *tokens; /* [count]: the numbers of the text's characters */
    int64_t count, train, vocabulary;
    int64_t *offsets; /* of a recorded run: where the windows of each step start; NULL: random */
    const int32_t **windows; /* [micro-batches · rows]: of this rank in a step */
    example_job job;
    gpt_model model;
    FILE *log;
} run;

/* The text ------------------------------------------------------------------------------------- */

/* Reads a character of UTF-8. Returns its bytes, or 0 if they are none. */
static size_t read_character(const unsigned char *at, size_t left, uint32_t *out)
{
    const size_t size = at[0] < 0x80           ? 1
                        : (at[0] >> 5) == 0x06 ? 2
                        : (at[0] >> 4) == 0x0e ? 3
                        : (at[0] >> 3) == 0x1e ? 4
                                               : 0;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (size == 0 || size > left)
        return 0;
    *out = size == 1 ? at[0] : at[0] & (0x7fU >> size);
    for (size_t i = 1; i < size; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        *out = *out << 6 | (at[i] & 0x3fU);
    }
    const bool is_half = *out >= 0xd800 && *out < 0xe000;
    return *out >= least[size] && *out <= 0x10ffff && !is_half ? size : 0;
}

static int compare(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Replaces the code points of the text by their numbers among those that occur, in ascending order.
 */
static bool number_characters(run *r)
{
    int32_t *known = malloc((size_t)r->count * sizeof *known);
    if (!known)
        return false;
    memcpy(known, r->tokens, (size_t)r->count * sizeof *known);
    qsort(known, (size_t)r->count, sizeof *known, compare);
    for (int64_t i = 0; i < r->count; i++)
        if (r->vocabulary == 0 || known[i] != known[r->vocabulary - 1])
            known[r->vocabulary++] = known[i];
    for (int64_t i = 0; i < r->count; i++) {
        const int32_t *at =
            bsearch(&r->tokens[i], known, (size_t)r->vocabulary, sizeof *known, compare);
        r->tokens[i] = (int32_t)(at - known);
    }
    free(known);
    return true;
}

static bool read_text(run *r)
{
    const gpt_options *o = &r->options;
    char error[512], *bytes = NULL;
    size_t size = 0, used = 0;
    if (!read_file(o->text, 1U << 30, &bytes, &size, error, sizeof error)) {
        fprintf(stderr, "gpt: %s\n", error);
        return false;
    }
    r->tokens = malloc((size + 1) * sizeof *r->tokens);
    while (r->tokens && used < size) {
        uint32_t code = 0;
        const size_t length = read_character((unsigned char *)bytes + used, size - used, &code);
        if (length == 0)
            break;
        r->tokens[r->count++] = (int32_t)code;
        used += length;
    }
    free(bytes);
    if (used < size) {
        fprintf(stderr, "gpt: %s: byte %zu is not UTF-8\n", o->text, used);
        return false;
    }
    r->train = r->count - r->count / 10;
    if (r->count / 10 <= o->block) {
        fprintf(stderr,
                "gpt: of %" PRId64 " characters the last tenth is held out, which has no "
                "window of %d\n",
                r->count, o->block);
        return false;
    }
    return number_characters(r);
}

/* Windows -------------------------------------------------------------------------------------- */

/* Finds the windows of this rank in micro-batches first … first + count − 1 of the training, or of
 * the held-out text. Which ones a micro-batch has does not depend on the ranks. */
static tsr_status take_windows(run *r, bool held_out, int64_t first, int count)
{
    const gpt_options *o = &r->options;
    const int64_t begin = held_out ? r->train : 0, end = held_out ? r->count : r->train;
    const uint64_t possible = (uint64_t)(end - begin - o->block);
    const int rows = job_rows(&r->job);
    for (int i = 0; i < count * rows; i++) {
        const int64_t window = (first + i / rows) * o->batch + job_first_row(&r->job) + i % rows;
        int64_t start;
        tsr_feistel order; /* each epoch has another permutation of all windows */
        TRY(tsr_feistel_init(possible, (uint64_t)o->seed, (uint64_t)window / possible, held_out,
                             &order));
        tsr_feistel_fill(&order, (uint64_t)window % possible, 1, 1, &start);
        r->windows[i] = r->tokens + begin + (r->offsets && !held_out ? r->offsets[window] : start);
    }
    return TSR_OK;
}

/* Learning ------------------------------------------------------------------------------------- */

/* Makes a step. */
static tsr_status learn(run *r, int64_t step, double *loss, double *norm)
{
    const gpt_options *o = &r->options;
    gpt_model *m = &r->model;
    tsr_stack_info info = TSR_INIT(tsr_stack_info);
    const tsr_schedule *schedule =
        tsr_schedule(.kind = TSR_SCHEDULE_COSINE, .learning_rate = o->learning_rate,
                     .final_rate = o->min_learning_rate, .warmup_steps = o->warmup,
                     .steps = o->decay);
    TRY(take_windows(r, false, step * o->accumulate, o->accumulate));
    TRY(model_pass(m, o->accumulate, r->windows, true, loss));
    TRY(tsr_stack_get_info(m->stack, &info));
    TRY(tsr_optimizer_clip(m->optimizer, o->clip > 0 ? (float)o->clip : INFINITY,
                           tsr_optimizer_clip_params(.group = r->job.tensor_group,
                                                     .stages = r->job.stage_comm,
                                                     .counted_elsewhere = info.counted_elsewhere),
                           norm));
    TRY(tsr_optimizer_step(m->optimizer, (float)tsr_schedule_rate(schedule, step)));
    TRY(experts_shift(m));
    return tsr_optimizer_zero_grad(m->optimizer);
}

static tsr_status evaluate(run *r, double *loss)
{
    double sum = 0;
    for (int i = 0; i < HELD_OUT_BATCHES; i++) {
        TRY(take_windows(r, true, i, 1));
        TRY(model_pass(&r->model, 1, r->windows, false, loss));
        sum += *loss / HELD_OUT_BATCHES;
    }
    *loss = sum;
    return TSR_OK;
}

static void log_step(const run *r, int64_t step, double loss, double norm)
{
    const int64_t experts = r->options.experts;
    fprintf(r->log, "{\"step\": %" PRId64 ", \"loss\": %.9g, \"grad_norm\": %.9g", step, loss,
            norm);
    if (experts > 0)
        fprintf(r->log, ", \"aux\": %.9g, \"load\": [", r->model.aux);
    for (int64_t i = 0; i < r->options.layers * experts; i++)
        fprintf(r->log, "%s%.0f%s",
                i % experts > 0 ? ", "
                : i > 0         ? ", ["
                                : "[",
                r->model.loads[i], (i + 1) % experts == 0 ? "]" : "");
    fprintf(r->log, "%s}\n", experts > 0 ? "]" : "");
}

static tsr_status learn_all(run *r)
{
    const gpt_options *o = &r->options;
    double loss = 0, norm = 0;
    for (int64_t step = 0;; step++) {
        const bool is_end = step == o->steps;
        if (o->eval_every > 0 && (is_end || step % o->eval_every == 0)) {
            double held_out;
            TRY(evaluate(r, &held_out));
            if (r->job.rank == 0)
                printf("step %" PRId64 "  loss %.4f  held out %.4f\n", step, loss, held_out);
            fflush(stdout);
        }
        if (is_end)
            return TSR_OK;
        TRY(learn(r, step, &loss, &norm));
        if (r->log)
            log_step(r, step, loss, norm);
    }
}

/* The whole run -------------------------------------------------------------------------------- */

/* Finds all errors that can be found without a device. */
static bool read_files(run *r)
{
    const gpt_options *o = &r->options;
    if (!read_text(r))
        return false;
    return !o->offsets || gpt_offsets_read(o->offsets, o->steps, o->batch * o->accumulate,
                                           r->train - o->block - 1, &r->offsets);
}

static tsr_status train(run *r, char error[256])
{
    const gpt_options *o = &r->options;
    const example_job_params params = {.program = "gpt",
                                       .ranks = o->ranks,
                                       .data = o->data,
                                       .tensor = o->tensor,
                                       .context = o->context,
                                       .stages = o->stages,
                                       .batch = o->batch,
                                       .device = o->device,
                                       .timeout_seconds = o->timeout};
    TRY(job_init(&r->job, &params, error));
    r->windows = calloc((size_t)o->accumulate * (size_t)job_rows(&r->job), sizeof *r->windows);
    if (!r->windows)
        return TSR_ERR_NO_MEMORY;
    TRY(model_init(&r->model, &r->job, o, r->vocabulary));
    if (o->log && r->job.rank == 0 && !(r->log = fopen(o->log, "w"))) {
        snprintf(error, 256, "%.200s cannot be written", o->log);
        return TSR_ERR_IO;
    }
    TRY(learn_all(r));
    return o->save ? tsr_stack_save(r->model.stack, o->save, r->job.stage_comm) : TSR_OK;
}

static int finish(run *r, int code)
{
    model_finish(&r->model);
    job_finish(&r->job);
    free((void *)r->windows);
    free(r->offsets);
    free(r->tokens);
    if (r->log && (ferror(r->log) | fclose(r->log)) != 0) {
        fprintf(stderr, "gpt: the log could not be written\n");
        code = 1;
    }
    return checked_output("gpt", code);
}

int main(int argc, char **argv)
{
    static run r;
    char error[256] = "";
    int code = gpt_options_read(argc, argv, &r.options);
    if (code >= 0)
        return code;
    const example_job_params params = {.program = "gpt", .ranks = r.options.ranks};
    if (!read_files(&r) || !job_launch(&params, argv))
        return finish(&r, 1);
    const tsr_status status = train(&r, error);
    if (status != TSR_OK)
        fprintf(stderr, "gpt: rank %d: %s\n", r.job.rank, *error ? error : tsr_last_error());
    return finish(&r, status != TSR_OK);
}
