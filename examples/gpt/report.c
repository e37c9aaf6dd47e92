#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/curve.h"

bool report_add(gpt_history *history, const gpt_record *record)
{
    if (history->count == history->capacity) {
        int capacity = history->capacity ? 2 * history->capacity : 64;
        gpt_record *larger = realloc(history->records, (size_t)capacity * sizeof *larger);
        if (!larger)
            return false;
        history->records = larger;
        history->capacity = capacity;
    }
    history->records[history->count++] = *record;
    return true;
}

void report_free(gpt_history *history)
{
    free(history->records);
    *history = (gpt_history){0};
}

static void report_loaded(const char *path, int64_t made, int steps)
{
    printf("loaded    %s, after step %lld\n", path, (long long)made);
    if (made >= steps)
        printf("          %s has made all of its %d steps; --steps N makes more\n", path, steps);
}

void report_setting(const gpt_model *model, const gpt_options *options, const gpt_text *text)
{
    const example_job *job = model->job;
    const gpt_config *c = model->config;
    const gpt_training *t = &model->training;
    const tsr_device_info *info = tsr_device_get_info(job->device);
    printf("device    %s; %s%s%s\n", info->name, info->driver_name, info->driver_info[0] ? " " : "",
           info->driver_info);
    printf("ranks     %d: %d data-parallel × %d tensor-parallel, parameters shared: %s\n",
           job->ranks, job->data, job->tensor, options->strategy);
    if (options->tensor_rates.count > 0) {
        printf("shares    of tensor-parallel ranks: %g", options->tensor_rates.values[0]);
        for (int i = 1; i < options->tensor_rates.count; i++)
            printf(", %g", options->tensor_rates.values[i]);
        printf("\n");
    }
    if (job->context > 1)
        printf("context   %d ranks divide each window; the first has %d of %d tokens\n",
               job->context, model->tokens, c->block);
    if (options->experts_over_data)
        printf("experts   divided over data-parallel ranks\n");
    if (options->wire)
        printf("wire      activations are sent as %s\n", tsr_dtype_name(options->wire));
    if (job->stages > 1) {
        printf("stages    %d, blocks: %d", job->stages, model->stage_blocks[0]);
        for (int s = 1; s < job->stages; s++)
            printf(", %d", model->stage_blocks[s]);
        printf("; %d micro-batches, of which each stage waits for %.0f %%\n", t->accumulate,
               100 * tsr_pipeline_bubble(job->stages, t->accumulate));
    }
    printf("text      %lld %s of %d kinds, the last %lld held out; %s\n", (long long)text->count,
           text_unit(text), text->vocabulary, (long long)(text->count - text->train),
           options->text);
    if (text->documents > 0)
        printf("documents %lld\n", (long long)text->documents);
    if (options->given_model)
        printf("continues %s\n", options->given_model);
    printf(
        "model     %s, %d block%s, %lld heads, %lld wide, %d tokens, %.2f million parameters, %s\n",
        gpt_style_name(gpt_config_style(c)), c->model.layers, c->model.layers == 1 ? "" : "s",
        (long long)gpt_config_layer(c)->heads, (long long)c->model.width, c->block,
        (double)tsr_model_config_parameters(&c->model, -1) * 1e-6, tsr_dtype_name(options->dtype));
    printf("learning  AdamW %g to %g, weight decay %g, %d × %d windows a step, %d step%s, seed "
           "%lld\n",
           t->learning_rate, t->min_learning_rate, t->weight_decay, t->accumulate, t->batch,
           t->steps, t->steps == 1 ? "" : "s", (long long)t->seed);
    if (options->load)
        report_loaded(options->load, tsr_optimizer_steps(model->optimizer), t->steps);
    printf("\n");
    fflush(stdout);
}

void report_add_time(gpt_pace *pace, double seconds)
{
    pace->seconds[pace->count++ % GPT_RECENT_STEPS] = seconds;
}

double report_mean_time(const gpt_pace *pace)
{
    const int64_t count = pace->count < GPT_RECENT_STEPS ? pace->count : GPT_RECENT_STEPS;
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += pace->seconds[i];
    return count > 0 ? sum / (double)count : 0;
}

void report_progress(int64_t step, int64_t steps, double loss, const gpt_pace *pace)
{
    const double each = report_mean_time(pace);
    long long left = (long long)ceil(each * (double)(steps - step));
    const char *end = isatty(STDOUT_FILENO) ? "\r" : "\n";
    printf("step %lld of %lld  loss %.3f  %.1f ms a step  %lld:%02lld left   %s", (long long)step,
           (long long)steps, loss, each * 1e3, left / 60, left % 60, end);
    fflush(stdout);
}

void report_ranks(int64_t step, int ranks, double seconds)
{
    printf("step %-6lld going on with %d ranks after %.2f s                \n", (long long)step,
           ranks, seconds);
    fflush(stdout);
}

void report_evaluation(const gpt_record *record)
{
    printf("step %-6lld loss %.4f  held out %.4f                         \n",
           (long long)record->step, record->loss, record->held_out_loss);
    fflush(stdout);
}

void report_files(const gpt_options *options)
{
    const struct {
        const char *what, *path;
    } files[] = {{"checkpoint", options->checkpoint},
                 {"model     ", options->save},
                 {"losses    ", options->curve},
                 {"log       ", options->log}};
    printf("\n");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (files[i].path)
            printf("%s %s\n", files[i].what, files[i].path);
}

bool report_curve(const char *path, const gpt_history *history)
{
    int n = history->count;
    double *values = malloc(((size_t)n + 1) * 3 * sizeof *values);
    if (!values) {
        fprintf(stderr, "gpt: out of memory\n");
        return false;
    }
    double *steps = values, *losses = steps + n, *held_out = losses + n;
    for (int i = 0; i < n; i++) {
        steps[i] = (double)history->records[i].step;
        losses[i] = history->records[i].loss;
        held_out[i] = history->records[i].held_out_loss;
    }
    bool written = curve_write("gpt", path,
                               &(curve_params){.title = "cross-entropy of the next character",
                                               .unit = "step",
                                               .lines = {{"training", n, steps, losses},
                                                         {"held out", n, steps, held_out}}});
    free(values);
    return written;
}

/* The number of tokens of a step that each expert of each layer got. */
static void print_loads(FILE *file, const gpt_model *model)
{
    const int64_t experts = model->experts;
    fprintf(file, ", \"aux\": %.9g, \"load\": [", model->aux);
    for (int l = 0; l < model->config->model.layers; l++) {
        fprintf(file, l > 0 ? ", [" : "[");
        for (int64_t e = 0; e < experts; e++)
            fprintf(file, e > 0 ? ", %.0f" : "%.0f", model->loads[l * experts + e]);
        fprintf(file, "]");
    }
    fprintf(file, "]");
}

void report_json_step(FILE *file, int64_t step, double loss, double grad_norm, int ranks,
                      const gpt_model *model)
{
    fprintf(file, "{\"step\": %lld, \"loss\": %.9g, \"grad_norm\": %.9g, \"ranks\": %d",
            (long long)step, loss, grad_norm, ranks);
    if (model && model->experts > 0)
        print_loads(file, model);
    fprintf(file, "}\n");
}

void report_json_evaluation(FILE *file, const gpt_record *record)
{
    fprintf(file, "{\"evaluated\": %lld, \"held_out_loss\": %.9g}\n", (long long)record->step,
            record->held_out_loss);
    fflush(file);
}
