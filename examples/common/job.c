#include "common/job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns a variable's value, or NULL if it is not set or empty. */
static char *variable(const char *name)
{
    char *value = getenv(name);
    return value && *value ? value : NULL;
}

static bool is_launched(void)
{
    return variable("RANK") || variable("PMIX_RANK");
}

#define HEAD 5 /* the number of words of "tessera launch -n N --" */

bool job_launch(const example_job_params *params, char **argv)
{
    if (params->ranks < 2 || is_launched())
        return true;
    char count[16], usual[] = "tessera", launch[] = "launch", n[] = "-n", end[] = "--";
    char *tool = variable("TESSERA_TOOL");
    char *const head[] = {tool ? tool : usual, launch, n, count, end};
    int own = 0;
    while (argv[own])
        own++;
    char **command = calloc((size_t)own + HEAD + 1, sizeof *command);
    if (!command) {
        fprintf(stderr, "%s: out of memory\n", params->program);
        return false;
    }
    snprintf(count, sizeof count, "%d", params->ranks);
    memcpy(command, head, sizeof head);
    memcpy(command + HEAD, argv, (size_t)own * sizeof *command);
    execvp(command[0], command);
    fprintf(stderr,
            "%s: %s: %s; --ranks needs the tool tessera in PATH, or TESSERA_TOOL to say where "
            "it is\n",
            params->program, command[0], strerror(errno));
    free(command);
    return false;
}

int job_first_row(const example_job *self)
{
    return (int)((int64_t)self->batch * self->data_rank / self->data);
}

int job_rows(const example_job *self)
{
    return (int)((int64_t)self->batch * (self->data_rank + 1) / self->data) - job_first_row(self);
}

static bool choose_grid(example_job *self, const example_job_params *params, char error[256])
{
    self->stages = params->stages ? params->stages : 1;
    self->context = params->context ? params->context : 1;
    self->data = params->data ? params->data : 1;
    const int each = self->ranks / (self->data * self->context * self->stages);
    self->tensor = params->tensor ? params->tensor : each > 0 ? each : 1;
    const int64_t grid = (int64_t)self->data * self->context * self->tensor;
    if (params->ranks && params->ranks != self->ranks)
        snprintf(error, 256, "--ranks %d, but %d were launched", params->ranks, self->ranks);
    else if (self->context > 1 && grid * self->stages != self->ranks)
        snprintf(error, 256,
                 "a grid of %dx%d with %d context ranks, %d time%s, has %lld ranks, but there are "
                 "%d",
                 self->data, self->tensor, self->context, self->stages,
                 self->stages == 1 ? "" : "s", (long long)grid * self->stages, self->ranks);
    else if (self->stages > 1 && grid * self->stages != self->ranks)
        snprintf(
            error, 256, "a grid of %dx%d in each of %d stages has %lld ranks, but there are %d",
            self->data, self->tensor, self->stages, (long long)grid * self->stages, self->ranks);
    else if (grid * self->stages != self->ranks)
        snprintf(error, 256, "a grid of %dx%d has %lld ranks, but there are %d", self->data,
                 self->tensor, (long long)grid, self->ranks);
    else if (params->batch % self->data != 0)
        snprintf(error, 256, "a batch of %d does not divide over %d rows of the grid",
                 params->batch, self->data);
    return *error == '\0';
}

/* Creates the group of the ranks of `world` with the same color, in the order of keys. */
static tsr_status create_group(example_job *self, int color, int key, tsr_dtype wire,
                               tsr_group **out)
{
    tsr_comm *comm = NULL;
    TRY(tsr_comm_split(self->world, color, key, &comm));
    const tsr_status status =
        tsr_group_create(comm, self->stream, tsr_group_params(.wire = wire), out);
    tsr_comm_destroy(&comm);
    return status;
}

tsr_status job_init(example_job *self, const example_job_params *params, char error[256])
{
    *self = (example_job){0};
    *error = '\0';
    TRY(tsr_comm_create(tsr_comm_params(.timeout_ns = (uint64_t)(params->timeout_seconds * 1e9)),
                        &self->world));
    self->rank = tsr_comm_rank(self->world);
    self->ranks = tsr_comm_size(self->world);
    self->batch = params->batch;
    if (!choose_grid(self, params, error))
        return TSR_ERR_INVALID;
    TRY(tsr_device_open(tsr_device_params(.device = params->device), &self->device));
    TRY(tsr_stream_create(self->device, &self->stream));
    const int rows = self->data * self->context, grid = rows * self->tensor,
              place = self->rank % grid, row = place / self->tensor;
    self->stage = self->rank / grid;
    self->data_rank = row / self->context;
    self->context_rank = row % self->context;
    self->tensor_rank = place % self->tensor;
    TRY(tsr_comm_split(self->world, place, self->stage, &self->stage_comm));
    TRY(tsr_comm_split(self->world, self->stage * self->tensor + self->tensor_rank, row,
                       &self->data_comm));
    TRY(tsr_group_create(self->data_comm, self->stream, NULL, &self->data_group));
    if (self->context > 1)
        TRY(create_group(
            self, (self->stage * self->data + self->data_rank) * self->tensor + self->tensor_rank,
            self->context_rank, 0, &self->context_group));
    return create_group(self, self->stage * rows + row, self->tensor_rank, params->wire,
                        &self->tensor_group);
}

void job_finish(example_job *self)
{
    tsr_group_destroy(&self->tensor_group);
    tsr_group_destroy(&self->context_group);
    tsr_group_destroy(&self->data_group);
    tsr_stream_destroy(&self->stream);
    tsr_device_close(&self->device);
    tsr_comm_destroy(&self->data_comm);
    tsr_comm_destroy(&self->stage_comm);
    tsr_comm_destroy(&self->world);
}
