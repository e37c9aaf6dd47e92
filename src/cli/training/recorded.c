#include "cli/training/recorded.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/memory.h"

#define MOST_COUNT (1 << 30)

tsr_status training_recorded_open(const char *path, training_recorded *out)
{
    json_error_t problem;
    *out = (training_recorded){.path = path};
    out->root = json_load_file(path, JSON_REJECT_DUPLICATES, &problem);
    if (out->root != NULL)
        return TSR_OK;
    return problem.line < 0 ? training_fail("%s: %s", path, problem.text)
                            : training_fail("%s:%d: %s", path, problem.line, problem.text);
}

void training_recorded_close(training_recorded *r)
{
    json_decref(r->root);
    *r = (training_recorded){0};
}

bool training_recorded_is_run(const training_recorded *r)
{
    return json_is_object(json_object_get(r->root, "config"));
}

/* Members -------------------------------------------------------------------------------------- */

static const json_t *member(const training_recorded *r, const char *group, const char *name)
{
    return json_object_get(group != NULL ? json_object_get(r->root, group) : r->root, name);
}

double training_recorded_number(training_recorded *r, const char *group, const char *name,
                                double missing, double most)
{
    const json_t *value = member(r, group, name);
    if (value == NULL || json_is_null(value))
        return missing;
    const double number = json_number_value(value);
    if (json_is_number(value) && number >= 0 && number <= most)
        return number;
    if (r->status == TSR_OK)
        r->status = training_fail("%s: \"%s\" is not a number from 0 to %.0f", r->path, name, most);
    return missing;
}

int64_t training_recorded_count(training_recorded *r, const char *group, const char *name,
                                int64_t missing)
{
    const double number =
        training_recorded_number(r, group, name, (double)missing, (double)MOST_COUNT);
    if ((number < 1 || number != floor(number)) && r->status == TSR_OK)
        r->status =
            training_fail("%s: \"%s\" is missing, or is no integer from 1 on", r->path, name);
    return (int64_t)number;
}

const char *training_recorded_text(const training_recorded *r, const char *group, const char *name)
{
    return json_string_value(member(r, group, name));
}

/* Settings ------------------------------------------------------------------------------------- */

/* Sets an option that was not given. */
static void set_number(training_recorded *r, const char *name, double missing, double most,
                       double *option)
{
    if (*option < 0)
        *option = training_recorded_number(r, "optimizer", name, missing, most);
}

static void set_count(training_recorded *r, const char *group, const char *name, int64_t unset,
                      int64_t *option)
{
    if (*option == unset)
        *option = (int64_t)training_recorded_number(r, group, name, 0, MOST_COUNT);
}

static void set_schedule(training_recorded *r)
{
    training_options *o = &training_chosen;
    const char *name = training_recorded_text(r, "optimizer", "schedule");
    const bool is_constant = name != NULL && strcmp(name, "constant") == 0;
    /* older recordings have a cosine, and do not say so */
    if (!is_constant && name != NULL && strcmp(name, "warmup-cosine") != 0 && r->status == TSR_OK)
        r->status =
            training_fail("%s: \"schedule\" is neither constant nor warmup-cosine", r->path);
    if ((int)o->schedule == TRAINING_UNSET)
        o->schedule = is_constant ? TSR_SCHEDULE_CONSTANT : TSR_SCHEDULE_COSINE;
    set_number(r, "min_lr", o->learning_rate, 1e9, &o->final_rate);
    set_count(r, "optimizer", "warmup", TRAINING_UNSET, &o->warmup);
    set_count(r, "optimizer", "decay_iters", 0, &o->decay_steps);
}

tsr_status training_recorded_settings(training_recorded *r)
{
    training_options *o = &training_chosen;
    if (o->context == 0)
        o->context = training_recorded_count(r, "config", "block", 0);
    if (o->batch == 0)
        o->batch = training_recorded_count(r, "config", "batch", 0);
    if (o->steps == 0)
        o->steps = (int64_t)json_array_size(json_object_get(r->root, "offsets"));
    set_count(r, "config", "seed", 0, &o->seed);
    set_number(r, "lr", TRAINING_UNSET, 1e9, &o->learning_rate);
    if (r->status == TSR_OK && o->learning_rate < 0)
        r->status = training_fail("%s: \"lr\" is missing", r->path);
    set_schedule(r);
    set_number(r, "beta1", 0.9, 1, &o->beta1);
    set_number(r, "beta2", 0.999, 1, &o->beta2);
    set_number(r, "wd", 0, 1e9, &o->weight_decay);
    set_number(r, "clip", 0, 1e9, &o->clip);
    if (o->epsilon == 0)
        o->epsilon = training_recorded_number(r, "optimizer", "eps", 0, 1);
    return r->status;
}

/* Rows ----------------------------------------------------------------------------------------- */

/* Reads where the rows of a step start. */
static tsr_status read_step(training_recorded *r, size_t step, int64_t last, int64_t *out)
{
    const json_t *row = json_array_get(json_object_get(r->root, "offsets"), step);
    const size_t batch = (size_t)training_chosen.batch;
    if (json_array_size(row) != batch)
        return training_fail("%s: step %zu of \"offsets\" has %zu rows, not %zu as --batch",
                             r->path, step, json_array_size(row), batch);
    for (size_t i = 0; i < batch; i++) {
        const json_t *value = json_array_get(row, i);
        out[i] = json_integer_value(value);
        if (!json_is_integer(value) || out[i] < 0 || out[i] > last)
            return training_fail("%s: row %zu of step %zu starts at %lld, but the text has rows "
                                 "from 0 to %lld",
                                 r->path, i, step, (long long)out[i], (long long)last);
    }
    return TSR_OK;
}

tsr_status training_recorded_offsets(training_recorded *r, int64_t tokens, int64_t **offsets,
                                     int64_t *count)
{
    const training_options *o = &training_chosen;
    const size_t steps = json_array_size(json_object_get(r->root, "offsets")),
                 batch = (size_t)o->batch;
    if ((int64_t)steps < o->steps)
        return training_fail("--steps %lld, but %s has %zu", (long long)o->steps, r->path, steps);
    int64_t *all = cli_alloc(steps * batch + 1, sizeof *all);
    tsr_status status = TSR_OK;
    for (size_t i = 0; i < steps && status == TSR_OK; i++)
        status = read_step(r, i, tokens - o->context - 1, all + i * batch);
    if (status != TSR_OK) {
        free(all);
        return status;
    }
    *offsets = all;
    *count = (int64_t)(steps * batch);
    return TSR_OK;
}
